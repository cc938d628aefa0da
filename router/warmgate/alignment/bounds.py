"""Jinja with a budget for each render, since chat templates are programs, often from strangers.

Jinja's sandbox keeps a template from this process's objects, not from its time and memory. Here

- every block of statements that runs spends as many steps as its expressions have parts, and filters that walk a list spend its length,
  so that loops within loops and recursion come to an end;
- what can multiply its input (``*``, ``**``, ``%``, ``~``, methods and filters that pad, join, replace or format, macros, lists of lists)
  is counted in characters before it is built, everything else after;
- processor time is looked at every few thousand steps, for what is slow without being long.

The same conversation is so rendered, or refused, alike on any machine, in any thread. Filters that no chat template needs and that are
hard to bound are absent, and so is ``lipsum``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, cast

from jinja2 import nodes
from jinja2.compiler import CodeGenerator, Frame, optimizeconst
from jinja2.exceptions import SecurityError
from jinja2.runtime import Context, Macro
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.utils import Namespace

from warmgate.alignment.budget import CHARACTERS, Budget, is_list
from warmgate.alignment.building import BUILDERS, filters, percent
from warmgate.alignment.template import TooCostly

BITS = 1 << 16
"""Bits of a whole number."""

PARTS = 5000
"""Parts of one statement's expressions: none of the published templates has a statement with more than a hundred or so."""

_OWN = (str, dict, list, tuple, bytes, int, float)
_OF_DICTS = frozenset(dir(dict))
_FROM_LOOPS = ("_loop_vars", "_block_vars")  # what compiled loops add to each call for those that ask for the context


class BoundedContext(Context):
    """The variables of one render, and its budget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.budget = Budget(self.parent)

    def derived(self, locals: dict[str, Any] | None = None) -> Context:  # noqa: A002 -- Jinja's name
        """A context for a scoped block; it spends the same budget."""
        context = cast("BoundedContext", super().derived(locals))
        context.budget = self.budget
        return context


class _Namespace(Namespace):
    """Jinja's, but for its text: written out, namespaces within namespaces would grow exponentially."""

    def __repr__(self) -> str:
        return "<Namespace>"


class BoundedCode(CodeGenerator):
    """Compiles templates to code that spends a budget."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._tests: dict[int, int] = {}

    def write_commons(self) -> None:
        """Names that all compiled functions know."""
        super().write_commons()
        for name in ("tick", "joined", "concat", "made", "kept", "sliced"):
            self.writeline(f"{name} = context.budget.{name}")

    def blockvisit(self, nodes: Iterable[nodes.Node], frame: Frame) -> None:
        """A block spends the parts of its expressions when it begins."""
        body = list(nodes)
        sizes = [self._parts(one) for one in body]
        if max(sizes, default=0) > PARTS:
            self.fail(f"a statement has more than {PARTS:,} parts", body[0].lineno)
        self.writeline(f"tick({1 + sum(sizes)})")
        super().blockvisit(body, frame)

    def visit(self, node: nodes.Node, *args: Any, **kwargs: Any) -> Any:
        """A loop's filter spends steps for every element that it is asked about."""
        steps = self._tests.pop(id(node), None)
        if steps is None:
            return super().visit(node, *args, **kwargs)
        self.write(f"(tick({steps}) or ")
        super().visit(node, *args, **kwargs)
        self.write(")")
        return None

    def visit_For(self, node: nodes.For, frame: Frame) -> None:  # noqa: N802 -- so Jinja finds it
        """See :meth:`visit`."""
        if node.test is not None:
            self._tests[id(node.test)] = 4 + self._parts(node.test)
        super().visit_For(node, frame)

    def visit_Concat(self, node: nodes.Concat, frame: Frame) -> None:  # noqa: N802 -- so Jinja finds it
        """``~``."""
        _concat(self, node, frame)

    def visit_Add(self, node: nodes.BinExpr, frame: Frame) -> None:  # noqa: N802 -- so Jinja finds it
        """``+``."""
        self._wrapped("kept", super().visit_Add, node, frame)

    def visit_Getitem(self, node: nodes.Getitem, frame: Frame) -> None:  # noqa: N802 -- so Jinja finds it
        """A slice is a copy."""
        if isinstance(node.arg, nodes.Slice):
            self._wrapped("sliced", super().visit_Getitem, node, frame)
        else:
            super().visit_Getitem(node, frame)

    def visit_List(self, node: nodes.List, frame: Frame) -> None:  # noqa: N802 -- so Jinja finds it
        """``[…]``."""
        self._literal(super().visit_List, node, frame)

    def visit_Tuple(self, node: nodes.Tuple, frame: Frame) -> None:  # noqa: N802 -- so Jinja finds it
        """``(…)``."""
        self._literal(super().visit_Tuple, node, frame)

    def visit_Dict(self, node: nodes.Dict, frame: Frame) -> None:  # noqa: N802 -- so Jinja finds it
        """``{…}``."""
        self._literal(super().visit_Dict, node, frame)

    def _literal(self, visit: Callable[[Any, Frame], None], node: nodes.Literal, frame: Frame) -> None:
        if getattr(node, "ctx", "load") != "load" or _constant(node):
            visit(node, frame)
        else:
            self._wrapped("made", visit, node, frame)

    def _wrapped(self, function: str, visit: Callable[[Any, Frame], None], node: nodes.Expr, frame: Frame) -> None:
        self.write(f"{function}(")
        visit(node, frame)
        self.write(")")

    @staticmethod
    def _parts(node: nodes.Node) -> int:
        """Parts of the expressions that a statement evaluates itself, not in its blocks."""
        count, left = 0, [node]
        while left:
            one = left.pop()
            count += 1
            nested = [name for name in ("body", "else_", "elif_") if isinstance(one, nodes.Stmt)]
            left += one.iter_child_nodes(exclude=nested)
            left += [branch.test for branch in getattr(one, "elif_", ())]
        return count


@optimizeconst
def _concat(code: CodeGenerator, node: nodes.Concat, frame: Frame) -> None:
    code.write("joined((")
    for one in node.nodes:
        code.visit(one, frame)
        code.write(", ")
    code.write("), markup_join)" if frame.eval_ctx.volatile or frame.eval_ctx.autoescape else "))")


def _constant(node: nodes.Expr) -> bool:
    """Whether a value is written out in the template."""
    if isinstance(node, (nodes.List, nodes.Tuple)):
        return all(map(_constant, node.items))
    if isinstance(node, nodes.Dict):
        return all(_constant(pair.key) and _constant(pair.value) for pair in node.items)
    return isinstance(node, nodes.Const)


class BoundedEnvironment(ImmutableSandboxedEnvironment):
    """Jinja's sandbox with a budget for each render."""

    intercepted_binops = frozenset({"*", "**", "%"})
    code_generator_class = BoundedCode
    context_class = BoundedContext

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.globals["namespace"] = _Namespace
        del self.globals["lipsum"]
        self.filters = filters()

    @staticmethod
    def concat(parts: Iterable[str]) -> str:  # pyright: ignore[reportIncompatibleVariableOverride] -- "".join there
        """What a template's named block prints, before the budget sees it."""
        kept: list[str] = []
        size = 0
        for part in parts:
            kept.append(part)
            size += len(part)
            if size > CHARACTERS:
                raise TooCostly("builds far more text than the conversation holds")
        return "".join(kept)

    def getattr(self, obj: Any, attribute: str) -> Any:
        """``x.name``. Quick for what messages are made of; the answer is the sandbox's."""
        if type(obj) is dict and attribute not in _OF_DICTS:
            held = cast("dict[str, Any]", obj)
            return held[attribute] if attribute in held else self.undefined(obj=obj, name=attribute)
        if isinstance(obj, _Namespace) and attribute[:1] != "_":
            try:
                return getattr(obj, attribute)
            except AttributeError:
                return self.undefined(obj=obj, name=attribute)
        return super().getattr(obj, attribute)

    def call_binop(self, context: Context, operator: str, left: Any, right: Any) -> Any:
        """``*``, ``**`` and ``%``, their results counted before they are built."""
        budget = cast("BoundedContext", context).budget
        if operator == "%":
            return percent(budget, left, right) if isinstance(left, (str, bytes)) else left % right
        if isinstance(left, int) and isinstance(right, int):
            bits = left.bit_length() * abs(right) if operator == "**" else left.bit_length() + right.bit_length()
            if bits > BITS:
                raise TooCostly("makes a number too large")
        for one, times in ((left, right), (right, left)):
            if isinstance(times, int):
                each = len(one) if isinstance(one, (str, bytes)) else 8 * len(one) if is_list(one) else 0
                budget.grow(max(times, 0) * each)
        result = super().call_binop(context, operator, left, right)
        return budget.made(result) if is_list(result) else result

    def call(self: Any, context: Any, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        """Call a macro, method or function. What a method may build is counted first, all results after."""
        budget = cast("BoundedContext", context).budget
        owner = getattr(getattr(function, "__wrapped__", function), "__self__", None)
        if not isinstance(owner, _OWN):
            if isinstance(function, Macro):
                budget.tick(8)
                if function.catch_varargs or function.catch_kwargs:
                    budget.made([*args, *kwargs.values()])
            elif not self.is_safe_callable(function):
                raise SecurityError(f"{function!r} is not safely callable")
            result = context.call(function, *args, **kwargs)
            return result if isinstance(function, Macro) else budget.kept(result)
        for name in _FROM_LOOPS:
            kwargs.pop(name, None)
        if (builder := BUILDERS.get(function.__name__)) is not None:
            args = builder(budget, owner, args, kwargs)
        result = function(*args, **kwargs)
        if is_list(result):
            budget.grow(64 * len(result))
        elif isinstance(result, (str, bytes)):
            budget.grow(len(result))
        return result
