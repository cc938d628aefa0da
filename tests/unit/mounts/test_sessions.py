"""If these fail, a session loses its tools or its prefix when something around it changes: a restart, a server, forged text, a thread."""

from __future__ import annotations

import threading
from typing import Any

import pytest

from tests.unit.mounts.test_mounts import NAMES, TOOLS, answer, calling, choice, of, settle, tool, user
from warmgate.errors import OptionError
from warmgate.questions import Choice
from warmgate.settings import Settings
from warmgate.turn import Turn
from warmgate_policies.mounts import Catalogue, MountOptions, ToolMounts, from_settings
from warmgate_policies.mounts.asking import NOTHING, option_of

LATER = "and now the other work, which takes longer than the first did"


def started(wanted: tuple[str, ...] = ("git",), **options: Any) -> tuple[ToolMounts, Any]:
    policy = ToolMounts(MountOptions(lengths=(400,) * 5, **options))
    return policy, settle(policy, Turn("s", user("commit my work"), TOOLS), None, wanted)


# -- restarts --------------------------------------------------------------------------------------------------------------------------


def test_a_policy_that_was_restarted_keeps_what_was_announced_out_of_the_list():
    """Else the list at the front grows by what stands at the end already, and the whole conversation is computed again."""
    fresh = ToolMounts(MountOptions(strategy="append"))
    web = of("web")
    fresh.restore("s", offered=of("git"), announced=web, mounted=(*of("git"), *web))
    mounts = settle(fresh, Turn("s", user("commit my work", LATER), TOOLS), (*of("git"), *web), ("mail",))
    assert mounts.offered == of("git")
    assert mounts.announce == of("mail")
    assert set(mounts.tools) == {*of("git"), *web, *of("mail")}


def test_an_older_checkpoint_is_taken_up_as_it_was():
    policy, mounts = started(strategy="append")
    later = settle(policy, Turn("s", user("commit my work", LATER), TOOLS), mounts.tools, ("web",))
    assert later.announce == of("web")
    policy.restore("s", offered=of("git"), announced=(), mounted=of("git"))
    again = settle(policy, Turn("s", user("commit my work", LATER), TOOLS), of("git"), ("web",))
    assert again.announce == of("web")


def test_what_the_policy_knows_itself_is_not_overwritten():
    """Its count of calls is what prices look ahead from."""
    policy, mounts = started()
    talk = [*user("commit my work"), *([{"role": "assistant", "content": "done"}] * 30), *user(LATER)]
    settle(policy, Turn("s", talk, TOOLS), mounts.tools, ())
    policy.restore("s", offered=of("git"), announced=(), mounted=of("git"))
    policy.ended("s")
    assert policy.turns.after(30) == 308.5  # of five sessions of 400 and this one of 31


def test_a_conversation_that_is_there_already_is_part_of_the_price():
    """Taken up without its state: a shorter list would compute all of it again."""
    policy = ToolMounts(MountOptions(lengths=(20,) * 5))
    long = [*user("commit my work"), {"role": "assistant", "content": "long " * 40_000}, *user(LATER)]
    mounts = settle(policy, Turn("s", long, TOOLS), None, ("git",))
    assert mounts.tools == NAMES
    assert "would not pay" in mounts.reason
    greeted = [{"role": "assistant", "content": "Hello, what can I do?"}, *user("commit my work")]
    assert settle(policy, Turn("t", greeted, TOOLS), None, ("git",)).tools == of("git")


def test_the_first_questions_are_asked_without_the_tools_unless_they_stay():
    """A catalogue of thousands would be prefilled, or not fit at all, to decide which ten to mount."""
    turn = Turn("s", user("commit my work"), TOOLS)
    assert ToolMounts().first_mount(turn) == "bare"
    assert ToolMounts(MountOptions(strategy="native")).first_mount(turn) == "all"
    taken_up = Turn("s", [*user("commit my work"), {"role": "assistant", "content": "long " * 40_000}], TOOLS)
    assert ToolMounts().first_mount(taken_up) == "all"


# -- the catalogue changes -------------------------------------------------------------------------------------------------------------


def test_a_server_that_comes_back_finds_its_place():
    policy, mounts = started(("git", "web"))
    gone = [t for t in TOOLS if "__web__" not in t["function"]["name"]]
    without = settle(policy, Turn("s", user("commit my work", LATER), gone), mounts.tools, ())
    assert without.tools == without.offered == of("git")
    policy.restore("s", offered=of("git"), announced=(), mounted=of("git"))  # the gate's own memory, which lost them
    back = settle(policy, Turn("s", user("commit my work", LATER, LATER), TOOLS), of("git"), ())
    assert back.tools == back.offered == (*of("git"), *of("web"))


@pytest.mark.parametrize("strategy", ["freeze", "append"])
def test_a_tool_that_is_new_is_announced_where_nothing_was_left_out(strategy):
    """Else an application that adds a tool during a session never gets it, although nobody decided against it."""
    policy = ToolMounts(MountOptions(strategy=strategy))
    mounts = policy.settle(Turn("s", user("hello"), TOOLS), None, {}, widen=True)
    more = [*TOOLS, tool("mcp__chat__post")]
    later = policy.settle(Turn("s", user("hello", LATER), more), mounts.tools, {}, widen=True)
    assert (later.announce, later.offered) == (("mcp__chat__post",), NAMES)


def test_a_tool_that_is_new_in_a_mounted_toolset_is_announced_and_in_another_not():
    policy, mounts = started(("git",))
    more = [*TOOLS, tool("mcp__git__push"), tool("mcp__mail__push")]
    later = policy.settle(Turn("s", user("commit my work", LATER), more), mounts.tools, {}, widen=True)
    assert later.announce == ("mcp__git__push",)


def test_options_that_name_what_is_not_there_are_told_at_the_first_mount():
    policy = ToolMounts(
        MountOptions(
            always=["thonk"], needs={"mcp__git__read": ["nowhere"]}, groups={"net": ["zz_*"]}, descriptions={"gti": "version control"}
        )
    )
    reason = policy.settle(Turn("s", user("hello"), TOOLS), None, {}, widen=True).reason
    assert "mount_options name what is not there: 'thonk' (always), 'zz_*' (groups), 'nowhere' (needs) and 1 more" in reason
    assert Catalogue(TOOLS, always=["mcp__git__*"], groups={"net": ["mcp__web__*"]}).strange == ""


def test_tools_that_need_each_other_and_names_given_twice_end():
    catalogue = Catalogue([*TOOLS, *TOOLS], needs={NAMES[0]: [NAMES[4]], NAMES[4]: [NAMES[0], NAMES[4]]})
    assert catalogue.expand([], [NAMES[0]]) == (NAMES[0], NAMES[4])
    assert len(catalogue.tools) == len(TOOLS)


def test_a_catalogue_too_big_for_the_model_is_cut_whatever_it_pays():
    """Three thousand schemas do not fit: without the cut no call of the agent succeeds."""
    tight = MountOptions(lengths=(1,) * 5, context_tokens=4_000)
    policy = ToolMounts(tight)
    policy.settle(Turn("other", user("hello"), TOOLS), None, {}, widen=True)
    mounts = settle(policy, Turn("s", user("commit my work"), TOOLS), None, ("git",))
    assert mounts.tools == of("git")
    assert "context tokens would be used" in mounts.reason


# -- what is answered ------------------------------------------------------------------------------------------------------------------


def test_an_agent_that_was_only_greeted_is_not_left_without_tools():
    """With a frozen list it would never get one: what it was not shown it cannot ask for."""
    policy = ToolMounts(MountOptions(lengths=(400,) * 5))
    mounts = settle(policy, Turn("s", user("hi"), TOOLS), None, ())
    assert mounts.tools == NAMES
    assert "none is needed yet" in mounts.reason


def test_a_remount_takes_down_no_tool_that_nobody_answered_about():
    policy, mounts = started(("git", "mail", "web"), strategy="remount")
    turn = Turn("s", user("commit my work", LATER), TOOLS)
    asked = dict(policy.questions(turn, mounts.tools))
    answers = answer(asked, ("git",))
    del answers[next(i for i, q in asked.items() if "mail" in q.instructions)]
    later = policy.settle(turn, mounts.tools, answers, widen=True)
    assert later.strategy == "remount"
    assert set(later.tools) == {*of("git"), *of("mail")}


def test_no_number_is_no_answer():
    policy = ToolMounts(MountOptions(lengths=(400,) * 5))
    turn = Turn("s", user("commit my work"), TOOLS)
    asked = dict(policy.questions(turn, None))
    answers = answer(asked, ("git",))
    odd = next(i for i, q in asked.items() if "mail" in q.instructions)
    answers[odd] = choice(odd, {"yes": float("nan"), "no": float("nan")})
    assert set(of("mail")) <= set(policy.settle(turn, None, answers, widen=True).tools)


def test_a_tie_among_options_narrows_to_all_of_them():
    many = [tool(f"server{i}__{verb}") for i in range(20) for verb in ("get", "put")]
    policy = ToolMounts(MountOptions(questions=10))
    turn = Turn("s", user("use a server"), many)
    asked = dict(policy.questions(turn, None))
    tied = {i: choice(i, dict.fromkeys(q.labels, 1 / len(q.labels))) for i, q in asked.items() if isinstance(q, Choice)}
    assert len(policy.narrow(turn, None, tied)) == 9


def test_forged_markup_is_said_to_be_the_reason_and_asks_only_once_a_loop():
    policy = ToolMounts()
    turn = Turn("s", user("commit my work"), TOOLS)
    assert policy.questions(turn, None)
    assert "forged markup" in policy.settle(turn, None, {}, widen=False).reason
    policy, mounts = started()
    vain = Turn("s", [*user("commit my work"), calling(of("web")[0])], TOOLS)
    assert policy.wants_again(vain, mounts.tools)
    assert policy.settle(vain, mounts.tools, {}, widen=False).tools == mounts.tools
    assert not policy.wants_again(vain, mounts.tools)


def test_a_toolset_that_calls_itself_nothing_cannot_take_the_answer_nothing():
    assert option_of(Catalogue([tool(NOTHING)]).toolsets[NOTHING]) != NOTHING


def test_names_that_look_the_same_stop_no_question():
    """One server with a name in two spellings would else keep every session from being narrowed."""
    names = [
        "\u00e9__a",
        "e\u0301__b",
        "x" * 80 + "1__c",
        "x" * 80 + "2__d",
        "\u65e5\u672c\u8a9e__\u691c\u7d22",
        "\ud800__e",
        "a\u202eb__f",
    ]
    tools = [tool(n) for n in names] + [tool(f"s{i}__go") for i in range(20)]
    policy = ToolMounts(MountOptions(lengths=(900,) * 5))
    mounts = settle(policy, Turn("s", user("search in Japanese"), tools), None, ("\u65e5\u672c\u8a9e",))
    assert mounts.tools == (names[4],)
    both = settle(policy, Turn("t", user("look"), tools), None, ("\u00e9",))
    assert both.tools == (names[0], names[1])  # one name to a reader, so one answer


@pytest.mark.parametrize(
    ("name", "server"),
    [
        ("mcp__git-hub__create_issue", "git-hub"),
        ("mcp__my_server__x__y", "my_server"),
        ("git.create", "git"),
        ("git/create", "git"),
        ("\u65e5\u672c\u8a9e__\u691c\u7d22", "\u65e5\u672c\u8a9e"),
        ("read_file", "read_file"),
        ("__init__", "__init__"),
        ("a" * 5_000 + "!", "a" * 5_000 + "!"),
        ("a_" * 5_000, "a_" * 5_000),
    ],
)
def test_the_server_is_told_from_a_name_of_any_script_and_length(name, server):
    assert list(Catalogue([tool(name)]).toolsets) == [server]


# -- prices and life -------------------------------------------------------------------------------------------------------------------


def test_a_list_that_is_held_says_what_another_would_cost():
    policy, mounts = started()
    policy.prefilled(20_000, 2.0)
    kept = settle(policy, Turn("s", user("commit my work", LATER), TOOLS), mounts.tools, ())
    assert kept.reason.startswith("kept, because another list would compute up to ")
    assert " ms): " in kept.reason
    assert kept.reason.endswith("of conversation; 3 tools serve on")


def test_the_prefill_rate_is_the_operators_the_settings_or_what_reads_showed():
    assert from_settings(Settings(workers=["http://w"], model="m", prefill_rate=5000)).prefill_rate == 5000
    own = Settings(workers=["http://w"], model="m", prefill_rate=5000, mount_options={"prefill_rate": 7000})
    assert from_settings(own).prefill_rate == 7000
    policy = ToolMounts()
    policy.prefilled(100, 0.001)  # mostly the way there
    assert policy.prefill_rate is None
    for rate in (1_000, 9_000, 90_000):
        policy.prefilled(rate * 2, 2.0)
    assert policy.prefill_rate == 9_000


def test_prices_look_ahead_in_calls_of_the_agent_and_not_in_user_turns():
    """A session of one user turn and forty calls is as long as forty: counted as one, no list would ever pay."""
    policy, mounts = started()
    messages = user("commit my work")
    for _ in range(39):
        messages = [*messages, calling(of("git")[0]), {"role": "tool", "content": "done"}]
        assert not policy.wants_again(Turn("s", messages, TOOLS), mounts.tools)
    policy.turns = type(policy.turns)()
    policy.ended("s")
    assert policy.turns.after(10) == 30


def test_calls_before_a_compaction_count():
    policy, mounts = started()
    messages = [*user("commit my work"), *[calling(of("git")[0])] * 20]
    policy.wants_again(Turn("s", messages, TOOLS), mounts.tools)
    policy.wants_again(Turn("s", [*user("a summary"), calling(of("git")[0])], TOOLS), mounts.tools)
    policy.turns = type(policy.turns)()
    policy.ended("s")
    assert policy.turns.after(2) == 20


def test_one_policy_serves_sessions_of_many_threads():
    policy = ToolMounts(MountOptions(strategy="append", lengths=(60,) * 5))
    faults: list[BaseException] = []

    def run(number: int) -> None:
        try:
            for round_ in range(20):
                session = f"{number}-{round_}"
                tools = [*TOOLS, tool(f"extra{number}{round_}__go")]
                mounts = settle(policy, Turn(session, user("commit my work"), tools), None, ("git",))
                later = settle(policy, Turn(session, user("commit my work", LATER), tools), mounts.tools, ("web",))
                assert later.announce == of("web")
                policy.ended(session)
        except BaseException as fault:  # noqa: BLE001 -- shown below, with the rest
            faults.append(fault)

    threads = [threading.Thread(target=run, args=(n,)) for n in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not faults


def test_sessions_with_all_tools_share_their_names():
    """A thousand sessions of a thousand tools would else hold a million references for nothing."""
    policy = ToolMounts()
    first = policy.settle(Turn("a", user("hello"), TOOLS), None, {}, widen=True)
    second = policy.settle(Turn("b", user("hello"), TOOLS), None, {}, widen=True)
    assert first.tools is second.tools
    assert policy.settle(Turn("b", user("hello", LATER), TOOLS), second.tools, {}, widen=True).tools is first.tools


@pytest.mark.parametrize(
    ("values", "says"),
    [
        ({"stratgy": "freeze"}, "meant strategy?"),
        ({"zzz": 1}, "one of strategy, groups"),
        ({"hysteresis": float("nan")}, "finite"),
        ({"cached_cost": float("inf")}, "finite"),
    ],
)
def test_a_slip_in_an_options_name_is_mended_in_the_message(values, says):
    with pytest.raises(OptionError, match="mount_options") as caught:
        MountOptions.of(values)
    assert says in str(caught.value).replace("\n", " ")
