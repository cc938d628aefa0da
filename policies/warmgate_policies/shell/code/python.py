"""Inline Python, read as a tree: imports, calls and names that can reach outside are judged by what they reach.

Strings are followed through plain assignments, ``Path(...)``, joins and concatenations; a call that runs, connects,
    loads or evaluates is never
allowed unless its effect is known. Attribute tricks (dunder names, ``getattr``) are asked about.
"""

from __future__ import annotations

import ast
import re
import warnings
from dataclasses import replace
from typing import TYPE_CHECKING

from warmgate_policies.shell import network, roles
from warmgate_policies.shell.code import python_names as names
from warmgate_policies.shell.code import sql
from warmgate_policies.shell.findings import UNKNOWN, Arg, Site
from warmgate_policies.shell.paths import classify

if TYPE_CHECKING:
    from warmgate_policies.shell.sites import Walker


def judge(walker: Walker, text: str, arg: Arg, site: Site | None = None) -> None:
    """Judge Python code."""
    del site
    if UNKNOWN in text:
        verdict = "deny" if arg.tags & {"net", "decoded"} else "ask"
        walker.find(
            "deny" if verdict == "deny" else "ask",
            "dynamic.code",
            "runs inline Python that the text of the command does not fix",
            arg.start,
            arg.end,
        )
        text = text.replace(UNKNOWN, "0")
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            tree = ast.parse(text)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        walker.find("ask", "code.python", "runs inline Python that cannot be read", arg.start, arg.end)
        if re.search(r"os\.system|subprocess|exec\(|eval\(|socket", text):
            walker.find("ask", "code.python", "inline Python runs programs", arg.start, arg.end)
        return
    try:
        judge_ = _Judge(walker, arg)
        judge_.visit(tree)
        if judge_.reaches and _whole_environment(tree):
            walker.find(
                "deny", "flow.secret-send", "inline Python takes the whole environment and talks to other machines", arg.start, arg.end
            )
    except RecursionError:
        walker.find("ask", "code.python", "runs inline Python that is nested too deeply", arg.start, arg.end)


def _whole_environment(tree: ast.AST) -> bool:
    """Whether ``os.environ`` is used as a whole, not by a key."""
    keyed = {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Subscript) or (isinstance(node, ast.Attribute) and node.attr in ("get", "setdefault", "pop"))
    }
    return any(isinstance(node, ast.Attribute) and node.attr == "environ" and id(node) not in keyed for node in ast.walk(tree))


class _Judge(ast.NodeVisitor):
    def __init__(self, walker: Walker, arg: Arg) -> None:
        self.walker = walker
        self.arg = arg
        self.names: dict[str, str] = {}
        self.values: dict[str, str | None] = {}
        self.opens: dict[str, None] = {}
        self.fetches = self.decodes = self.evals = self.connects = self.runs = self.reaches = False

    def find(self, verdict: str, rule: str, reason: str) -> None:
        self.walker.find("deny" if verdict == "deny" else "ask", rule, f"inline Python {reason}", self.arg.start, self.arg.end)

    # -- names ----------------------------------------------------------------------------------------------------------------

    def dotted(self, node: ast.AST) -> str:
        """``os.path.join`` for an attribute chain, aliases of imports resolved; ``__import__('os').system`` too."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id, node.id)
        if isinstance(node, ast.Attribute):
            return f"{self.dotted(node.value)}.{node.attr}"
        if isinstance(node, ast.Call):
            name = self.dotted(node.func)
            if name in ("__import__", "importlib.import_module") and node.args:
                return self.text(node.args[0]) or "?"
            return f"{name}()"
        return "?"

    def text(self, node: ast.AST | None) -> str | None:
        """The string a node is, where the code fixes it."""
        if isinstance(node, ast.Constant):
            return node.value if isinstance(node.value, str) else None
        if isinstance(node, ast.Name):
            return self.values.get(node.id)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Div):
            left, right = self.text(node.left), self.text(node.right)
            if left is None or right is None:
                return None
            return left + right if isinstance(node.op, ast.Add) else left.rstrip("/") + "/" + right
        if isinstance(node, ast.Call):
            name = self.dotted(node.func)
            if name in (
                "pathlib.Path",
                "Path",
                "os.path.join",
                "pathlib.PurePath",
                "os.path.expanduser",
                "os.path.abspath",
                "str",
                "os.fspath",
            ):
                parts = [self.text(part) for part in node.args]
                if any(part is None for part in parts):
                    return None
                return "/".join(part or "" for part in parts) if parts else "."
            if name in ("pathlib.Path.home", "Path.home"):
                return self.walker.facts.home
            if name in ("pathlib.Path.cwd", "Path.cwd", "os.getcwd"):
                return "."
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("expanduser", "resolve", "absolute"):
                return self.text(node.func.value)
            if isinstance(node.func, ast.Attribute) and node.func.attr in ("glob", "rglob", "iterdir"):
                base = self.text(node.func.value)
                tail = self.text(node.args[0]) if node.args else "*"
                return None if base is None or tail is None else f"{base}/{'**/' if node.func.attr == 'rglob' else ''}{tail}"
            if name in ("glob.glob", "glob.iglob", "sorted", "list", "iter", "reversed"):
                return self.text(node.args[0]) if node.args else None
            if name == "open":
                return self.text(node.args[0]) if node.args else None
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            base = self.text(node.value)
            return None if base is None else base + "/.."
        if isinstance(node, ast.JoinedStr):
            parts = [self.text(value.value if isinstance(value, ast.FormattedValue) else value) for value in node.values]
            return None if any(part is None for part in parts) else "".join(part or "" for part in parts)
        return None

    # -- statements -----------------------------------------------------------------------------------------------------------

    def visit_Module(self, node: ast.Module) -> None:
        self.generic_visit(node)
        if (self.evals and (self.fetches or self.decodes)) or (self.runs and self.decodes):
            self.find("deny", "flow.download-run", "runs what it fetches or decodes")
        if self.connects and self.runs:
            self.find("deny", "rce.reverse", "ties a program to a connection")

    def visit_Import(self, node: ast.Import) -> None:
        for alias in node.names:
            self.names[alias.asname or alias.name.split(".")[0]] = alias.name if alias.asname else alias.name.split(".")[0]
            self._module(alias.name)

    def visit_ImportFrom(self, node: ast.ImportFrom) -> None:
        module = node.module or "."
        if any(alias.name == "*" for alias in node.names):
            self.find("ask", "code.python", f"takes everything from {module}")
        for alias in node.names:
            self.names[alias.asname or alias.name] = f"{module}.{alias.name}"
            if module == "os" and f"os.{alias.name}" not in (*names.FILE_CALLS, *names.OS_HARMLESS, "os.environ", "os.getenv"):
                self.find("ask", "code.python", f"takes {alias.name} from os")
            self._module(f"{module}.{alias.name}")

    def _module(self, module: str) -> None:
        if module.split(".", maxsplit=1)[0] in ("posix", "nt", "posixpath_") or (
            module.startswith("_") and not module.startswith("__future__")
        ):
            self.find("ask", "code.python", f"imports {module}, an inner module")
        if any(module == known or module.startswith(known + ".") for known in names.RUNNERS):
            if module.split(".", maxsplit=1)[0] not in (
                "subprocess",
                "pty",
                "asyncio",
                "threading",
                "concurrent",
                "signal",
                "inspect",
                "timeit",
                "types",
            ):
                self.find("ask", "code.python", f"imports {module}, which can run or load other code")
            elif module.split(".", maxsplit=1)[0] == "pty":
                self.runs = True
        if any(module == known or module.startswith(known + ".") for known in names.NETWORK):
            self.connects |= module.startswith("socket")
            self.reaches = True
            if module.split(".", maxsplit=1)[0] not in ("ssl", "redis", "dns"):
                self.find("ask", "net.contact", f"imports {module}, which talks to other machines")
            else:
                self.find("ask", "net.contact", f"imports {module}, which talks to other services")
        if module.split(".", maxsplit=1)[0] in ("base64", "binascii", "codecs", "zlib"):
            self.decodes = True

    def visit_Assign(self, node: ast.Assign) -> None:
        self.generic_visit(node)
        for target in node.targets:
            if isinstance(target, ast.Name):
                fixed = self.text(node.value)
                self.values[target.id] = fixed if target.id not in self.values or self.values[target.id] == fixed else None
                if isinstance(node.value, ast.Name | ast.Attribute):
                    name = self.dotted(node.value)
                    if (
                        name in names.EVAL
                        or name in names.SHELL_CALLS
                        or (name.startswith(("os.", "subprocess")) and not name.startswith(names.OS_HARMLESS))
                    ):
                        self.find("ask", "code.python", f"gives {name} another name")
                    self.names[target.id] = name

    def visit_For(self, node: ast.For) -> None:
        if isinstance(node.target, ast.Name):
            self.values[node.target.id] = self.text(node.iter)
        self.generic_visit(node)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        if isinstance(node.target, ast.Name):
            self.values[node.target.id] = self.text(node.iter)
        self.generic_visit(node)

    def _comprehension(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp | ast.DictComp) -> None:
        for part in node.generators:
            self.visit(part)
        for child in (node.key, node.value) if isinstance(node, ast.DictComp) else (node.elt,):
            self.visit(child)

    visit_ListComp = visit_SetComp = visit_GeneratorExp = visit_DictComp = _comprehension  # noqa: N815

    def visit_With(self, node: ast.With) -> None:
        for item in node.items:
            if isinstance(item.optional_vars, ast.Name):
                self.values[item.optional_vars.id] = None
        self.generic_visit(node)

    def visit_While(self, node: ast.While) -> None:
        if (
            isinstance(node.test, ast.Constant)
            and node.test.value
            and not any(isinstance(child, ast.Break | ast.Return) for child in ast.walk(node))
        ):
            forks = any(isinstance(child, ast.Call) and self.dotted(child.func) == "os.fork" for child in ast.walk(node))
            self.find("deny" if forks else "ask", "loop.endless", "loops without an end")
        self.generic_visit(node)

    # -- expressions ----------------------------------------------------------------------------------------------------------

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, str) and len(node.value) < 300 and names.PATHLIKE.fullmatch(node.value):
            self._named(node.value)
        if isinstance(node.value, int | float) and not isinstance(node.value, bool) and abs(node.value) >= 10**10:
            self.find("ask", "exhaust.memory", "uses a huge number")

    def _named(self, text: str) -> None:
        """A path written out anywhere: what it is for may be out of sight."""
        place = classify(text, self.walker.state.cwd, self.walker.facts)
        if "secret" in place or "docker" in place or ("dotenv" in place and place.kind == "workspace" and "/.env" in "/" + text):
            roles.read(self.walker, replace(self.arg, text=text, glob=False, shape=None, stream=None, split=False), "inline Python")
        elif text.startswith(("/", "~", "..")) and place.kind not in ("workspace", "scratch", "system", "device", "cache", "kernel"):
            self.find("ask", "code.python", f"names {text[:60]}, outside the workspace")

    def visit_Name(self, node: ast.Name) -> None:
        if node.id in ("__builtins__", "__loader__", "__spec__") or (
            node.id in ("eval", "exec", "compile", "__import__") and isinstance(node.ctx, ast.Load)
        ):
            self.find("ask", "code.python", f"uses {node.id}")

    def visit_Attribute(self, node: ast.Attribute) -> None:
        name = self.dotted(node)
        inner = node.attr in names.INNER or (node.attr.startswith("_") and not node.attr.startswith("__"))
        if inner and not name.startswith(("self.", "os.path", "collections.")):
            self.find("ask", "code.python", f"reaches for {node.attr} inside a module")
        if name in names.SHELL_CALLS or name.startswith("subprocess."):
            self.find("ask", "code.python", f"uses {name}")
        if node.attr.startswith("__") and node.attr not in names.DUNDER_OK:
            self.find("ask", "code.python", f"reaches for {node.attr}")
        if name.startswith(("os.environ", "os.getenv")):
            self.find("ask", "env.dump", "reads the environment")
        elif (
            name.startswith("os.")
            and name.count(".") == 1
            and name not in names.FILE_CALLS
            and not name.startswith(names.OS_HARMLESS)
            and name not in names.SHELL_CALLS
        ) or (
            name.startswith("sys.") and node.attr in ("modules", "path", "meta_path", "path_hooks", "settrace", "setprofile", "_getframe")
        ):
            self.find("ask", "code.python", f"uses {name}")
        self.generic_visit(node)

    def visit_Subscript(self, node: ast.Subscript) -> None:
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if isinstance(node.op, ast.Pow) or (
            isinstance(node.op, ast.Mult | ast.LShift)
            and any(isinstance(side, ast.BinOp) and isinstance(side.op, ast.Pow | ast.LShift) for side in (node.left, node.right))
        ):
            sizes = [side.value for side in (node.left, node.right) if isinstance(side, ast.Constant) and isinstance(side.value, int)]
            if isinstance(node.op, ast.Pow) and len(sizes) == 2 and sizes[1] >= 9 and sizes[0] > 1:
                self.find("ask", "exhaust.memory", "computes a huge number")
        self.generic_visit(node)

    def visit_Call(self, node: ast.Call) -> None:
        name = self.dotted(node.func)
        if re.search(r"\.(download|snapshot_download|hf_hub_download|from_pretrained|load_dataset|push_to_hub|urlretrieve)$", name):
            self.find("ask", "net.fetch", f"calls {name}, which may fetch from the network")
        first = (
            node.args[0]
            if node.args
            else next((k.value for k in node.keywords if k.arg in ("args", "file", "path", "filename", "name")), None)
        )
        if (
            name in names.SHELL_CALLS
            or name.startswith(("os.exec", "os.spawn"))
            or (re.match(r"subprocess\.\w+$", name) and name[11:12].islower())
        ):
            self._shell(node, first, name)
        elif name in names.EVAL:
            self.evals |= name in ("eval", "exec", "compile")
            literal = self.text(first)
            if name in ("eval", "exec") and literal is not None and len(literal) < 20000:
                judge(self.walker, literal, replace(self.arg, text=literal))
            elif name == "vars" and not node.args:
                self.find("ask", "code.python", f"calls {name}")
            self.find("ask", "code.python", f"calls {name}, which runs or reaches what the text does not fix")
        elif name in names.FILE_CALLS:
            self._file(node, first, names.FILE_CALLS[name], name)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in names.FILE_METHODS and not name.startswith(("self.", "webbrowser")):
            self._method(node, node.func)
        elif isinstance(node.func, ast.Attribute) and node.func.attr in ("execute", "executescript", "executemany"):
            statement = self.text(first)
            if statement is None:
                self.find("ask", "db.mutate", "runs statements that its text does not fix")
            else:
                sql.judge(self.walker, replace(self.arg, text=statement), "inline Python", remote=False)
        elif (
            "urlopen" in name or name.split(".")[0] in ("requests", "httpx", "urllib") or name.startswith(("urllib.request", "http.client"))
        ):
            self.fetches = True
            if any(verb in name for verb in (".post", ".put", ".patch")) and any(
                (isinstance(child, ast.Name) and child.id == "open")
                or (isinstance(child, ast.Attribute) and child.attr in ("environ", "read_text", "read_bytes"))
                for child in ast.walk(node)
            ):
                secret = any(f.rule.startswith(("secret", "env")) for f in self.walker.findings)
                self.find("deny" if secret else "ask", "flow.secret-send", "sends a file or the environment away")
        elif name.startswith("socket."):
            self.connects = True
        elif name == "os.dup2":
            self.runs = True
        elif name.endswith((".b64decode", ".fromhex", ".decompress", ".a85decode", ".unhexlify")) or (
            isinstance(node.func, ast.Attribute)
            and node.func.attr == "decode"
            and any(self.text(a) in ("rot13", "rot_13", "hex", "base64") for a in node.args)
        ):
            self.decodes = True
        elif not isinstance(node.func, ast.Name | ast.Attribute | ast.Lambda) and not (isinstance(node.func, ast.Call)):
            self.find("ask", "code.python", "calls what the text does not fix")
        for string in [self.text(a) for a in node.args] + [self.text(k.value) for k in node.keywords]:
            if string and "://" in string and name not in ("print", "re.sub", "re.compile", "re.match", "re.search", "re.findall"):
                network.scan(self.walker, replace(self.arg, text=string), "inline Python")
        self.generic_visit(node)

    def _shell(self, node: ast.Call, first: ast.AST | None, name: str) -> None:
        self.runs = True
        if isinstance(first, ast.List | ast.Tuple):
            words = [self.text(item) for item in first.elts]
            import shlex

            code = " ".join(shlex.quote(word) if word is not None else '"$WARMGATE_UNKNOWN_PART"' for word in words)
        elif name.startswith(("os.exec", "os.spawn", "os.posix")):
            code = None
            self.find("ask", "code.python", f"runs a program by {name}")
            words = [self.text(item) for item in node.args]
            if any(word and re.search(r"(^|/)(ba|z|da|k)?sh$", word) for word in words):
                self.runs = True
            return
        else:
            code = self.text(first)
        if code is None:
            if (
                self.fetches
                or self.decodes
                or any(
                    isinstance(child, ast.Attribute) and child.attr in ("urlopen", "b64decode", "get", "fromhex")
                    for child in ast.walk(node)
                )
            ):
                self.find("deny", "flow.download-run", "runs what it fetches or decodes")
            self.find("ask", "dynamic.code", f"runs a program by {name} that the text does not fix")
            return
        self.walker.code(code, replace(self.arg, text=code))
        self.find("ask", "code.python", f"runs a program by {name}")

    def _file(self, node: ast.Call, first: ast.AST | None, kind: str, name: str) -> None:
        if kind == "none":
            if name == "os.chdir":
                self.find("ask", "code.python", "changes the working directory")
            return
        if kind == "unpickle":
            self.find("ask", "code.python", f"loads code-bearing data by {name}")
            kind = "read"
        path = self.text(first)
        if kind == "open":
            mode = (
                self.text(node.args[1]) if len(node.args) > 1 else next((self.text(k.value) for k in node.keywords if k.arg == "mode"), "r")
            )
            kind = "write" if mode is None or re.search(r"[wax+]", mode) else "read"
        if path is None:
            if kind != "list":
                self.find("ask", "dynamic.target", f"{'reads' if kind == 'read' else 'changes'} a file that its text does not fix")
            return
        self._path(path, kind)
        if kind in ("copy", "write2", "link") and len(node.args) > 1:
            target = self.text(node.args[1])
            if target is None:
                self.find("ask", "dynamic.target", "writes a file that its text does not fix")
            else:
                self._path(target, "write")
        if (
            kind == "chmod"
            and len(node.args) > 1
            and isinstance(node.args[1], ast.Constant)
            and isinstance(node.args[1].value, int)
            and node.args[1].value & 0o6000
        ):
            self.find("deny", "privilege.setuid", "sets a setuid bit")

    def _path(self, path: str, kind: str) -> None:
        arg = replace(self.arg, text=path, glob="*" in path, shape=None, stream=None, split=False)
        if kind in ("read", "copy", "link"):
            roles.read(self.walker, arg, "inline Python")
        elif kind == "list":
            roles.read(self.walker, arg, "inline Python", listing=True)
        elif kind in ("delete", "rdelete", "write2"):
            roles.delete(self.walker, arg, "inline Python", recursive=kind == "rdelete")
        else:
            roles.write(self.walker, arg, "inline Python", append=True)

    def _method(self, node: ast.Call, func: ast.Attribute) -> None:
        kind = names.FILE_METHODS[func.attr]
        base = self.text(func.value)
        if func.attr.startswith("to_") or func.attr in ("savefig", "extractall"):
            path = self.text(node.args[0]) if node.args else None
            if path is None:
                if node.args or func.attr == "extractall":
                    self.find("ask", "dynamic.target", "writes a file that its text does not fix")
                return
            self._path(path, "write")
            return
        if kind == "open":
            mode = self.text(node.args[0]) if node.args else "r"
            kind = "write" if mode is None or re.search(r"[wax+]", mode) else "read"
        if base is None:
            self.find("ask", "dynamic.target", f"{'reads' if kind == 'read' else 'changes'} a file that its text does not fix")
            return
        self._path(base, kind)
        if func.attr == "rename" and node.args:
            target = self.text(node.args[0])
            self._path(target, "write") if target is not None else self.find(
                "ask", "dynamic.target", "moves a file to a place that its text does not fix"
            )
