"""If these fail, an operator cannot say that a tool is harmless, or says it of more tools than meant."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from tests.unit.shell.test_policy import call, policy_file, turn
from warmgate.errors import OptionError
from warmgate.turn import ProposedCall
from warmgate_policies.shell import ShellPolicy, from_settings


def word(policy: ShellPolicy, name: str, **arguments: object) -> str:
    return policy.judge(ProposedCall("1", name, arguments), turn()).verdict


def test_without_a_list_every_other_tool_is_asked_about():
    """A tool nobody spoke of would run."""
    judged = ShellPolicy().judge(ProposedCall("1", "read_file", {"path": "a"}), turn())
    assert (judged.verdict, judged.rule) == ("ask", "tool.unknown")


def test_the_operator_says_what_may_run():
    """Reading a file would be asked about on every step of every session."""
    policy = ShellPolicy(allow_tools=["read_file", "list_*"], ask_tools=["list_secrets"], deny_tools=["delete_*", "list_all"])
    assert word(policy, "read_file", path="/etc/passwd") == "allow"
    assert word(policy, "list_files") == "allow"
    assert word(policy, "list_secrets") == "ask"
    assert word(policy, "list_all") == "deny"
    assert word(policy, "delete_file", path="a") == "deny"
    assert word(policy, "write_file") == "ask"
    judged = policy.judge(ProposedCall("1", "read_file", {}), turn())
    assert (judged.rule, judged.reason) == ("operator.tool", "the operator allows the tool read_file")


@pytest.mark.parametrize("listed", ["github.get_issue", "mcp__github__get_issue", "github.get_*", "mcp__github__*"])
@pytest.mark.parametrize("called", ["github.get_issue", "mcp__github__get_issue"])
def test_a_tool_of_a_server_has_one_name(listed, called):
    """A list written as people say the name would not cover it as hosts write it, nor a refusal."""
    assert word(ShellPolicy(allow_tools=[listed]), called) == "allow"
    assert word(ShellPolicy(allow_tools=["*"], deny_tools=[listed]), called) == "deny"


def test_names_are_told_apart():
    """A tool would be taken for one that is called alike."""
    policy = ShellPolicy(allow_tools=["read_file", "fs.read"])
    assert {word(policy, name) for name in ("Read_File", "read_file2", "xread_file", "read", "read.fs", "fsxread", "mcp__fs__reads")} == {
        "ask"
    }


@pytest.mark.parametrize("name", ["execute_python", "remote_shell", "mcp__box__run", "box.exec", "Terminal", "runCommand", "sh2.sh", "cmd"])
def test_a_pattern_allows_no_tool_that_runs_commands(name):
    """``*`` would let a shell run unjudged because its name is not in ``tools``; it must be named in full."""
    assert word(ShellPolicy(allow_tools=["*"]), name, command="rm -rf /") == "ask"
    assert word(ShellPolicy(allow_tools=[name]), name) == "allow"


@pytest.mark.parametrize("where", ["allow_tools", "ask_tools", "deny_tools"])
def test_a_shell_tool_is_in_no_list(where):
    """An operator would believe that the shell is refused, or open, by its name."""
    with pytest.raises(OptionError, match="judged one by one") as fault:
        ShellPolicy(**{where: ["read_file", "bash"]})
    assert fault.value.where == f"shell_options.{where}"
    with pytest.raises(OptionError, match="pot is a shell tool"):
        ShellPolicy(tools=["pot"], **{where: ["pot"]})


def test_a_pattern_over_shell_tools_lifts_nothing_and_promises_nothing():
    """``allow_tools = ["*"]`` would run any command; ``deny_tools = ["*"]`` would not refuse them."""
    policy = ShellPolicy(allow_tools=["*"])
    assert policy.judge(call("rm -rf /"), turn()).verdict == "deny"
    assert policy.judge(call("git push"), turn()).verdict == "ask"
    for where in ("ask_tools", "deny_tools"):
        with pytest.raises(OptionError, match=r"covers .*, a shell tool"):
            ShellPolicy(**{where: ["*"]})


@pytest.mark.parametrize("name", ["", " ", "read file", "a\nb", "x" * 300, "read\u202efile"])
def test_a_name_no_tool_can_have_is_said_at_once(name):
    """A slip in the list would be found out call by call."""
    with pytest.raises(OptionError, match="no tool can be called"):
        ShellPolicy(allow_tools=[name])


def test_the_lists_are_settings_and_part_of_the_binding():
    """The options could not be set in a file; an approval given under one list would hold under another."""
    options = {"allow_tools": ["read_file"], "ask_tools": ["x"], "deny_tools": ["y"]}
    policy = from_settings(SimpleNamespace(shell_options=options))
    assert [word(policy, name) for name in ("read_file", "x", "y")] == ["allow", "ask", "deny"]
    versions = {ShellPolicy().version, policy.version, ShellPolicy(allow_tools=["x"]).version, ShellPolicy(deny_tools=["x"]).version}
    assert len(versions) == 4
    with pytest.raises(OptionError, match=r"shell_options\.allow_tools"):
        from_settings(SimpleNamespace(shell_options={"allow_tools": "read_file"}))


def test_thresholds_hold_with_any_list(tmp_path):
    """Naming one harmless tool would void the calibration for commands."""
    plain = policy_file(tmp_path / "a.json", f"shell {ShellPolicy().version}")
    listed = ShellPolicy(allow_tools=["read_file"])
    own = policy_file(tmp_path / "b.json", f"shell {listed.version}")
    for path in (plain, own):
        judged = ShellPolicy(allow_tools=["read_file"], calibrated=path).judge(call("git fetch"), turn())
        assert judged.question is not None
