"""Calls each tool of `atomdir mcp` as an agent would. Arguments: the command to start, then where
the store is. Prints nothing, and fails at the first answer that is not as expected."""

import asyncio
import json
import os
import sys

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

STORE, COMMAND = sys.argv[1], sys.argv[2:]


class Refused(Exception):
    """The tool's error: its message, and what it says to do."""


def running(word):
    """Whether a process has this word in its command line."""
    for process in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{process}/cmdline", "rb") as file:
                if word.encode() in file.read():
                    return True
        except OSError:
            pass
    return False


async def talk(session):
    await session.initialize()
    tools = {tool.name for tool in (await session.list_tools()).tools}
    used = set()

    async def call(tool, /, **arguments):
        used.add(tool)
        result = await session.call_tool(tool, arguments)
        answer = json.loads(result.content[0].text)
        failed = result.is_error if hasattr(result, "is_error") else result.isError
        if failed:
            raise Refused(answer["error"])
        return answer

    async def refused(what, tool, /, **arguments):
        try:
            answer = await call(tool, **arguments)
        except Refused as error:
            assert what in json.dumps(error.args[0]), (what, error)
            return error.args[0]
        raise AssertionError(f"{tool} {arguments} must be refused, and answered {answer}")

    def base(name):
        with open(os.path.join(STORE, name), encoding="utf-8") as file:
            return file.read()

    # A command by itself is a transaction.
    ran = await call("run", command="cat > page; echo done; echo why >&2", input="one\n")
    assert ran["outcome"]["outcome"] == "committed" and ran["stdout"] == "done\n", ran
    assert "why" in ran["stderr"] and base("page") == "one\n", ran
    first = ran["outcome"]["commit"]
    ran = await call("run", command="rm page; exit 3")
    assert ran["exit_code"] == 3 and ran["outcome"]["outcome"] == "aborted", ran
    mark = f"98765{os.getpid()}"
    ran = await call("run", command=f"rm page; sleep {mark}; true", timeout_seconds=1)
    assert "timeout_seconds" in ran["ended"] and base("page") == "one\n", ran
    # The command's own processes are killed, and the one that clears up after them then ends.
    while running(mark):
        await asyncio.sleep(0.05)
    ran = await call("run", command="head -c 100000 /dev/zero | tr '\\0' x")
    assert "left out" in ran["stdout"] and len(ran["stdout"]) < 40000, len(ran["stdout"])

    # Several steps.
    begun = await call("begin", label="a turn")
    transaction = begun["transaction"]
    write = f"echo two > '{begun['view']}/page'"
    await call("run", transaction=transaction, command=write)
    ran = await call("run", transaction=transaction, command="pwd; mkdir dir; echo x > dir/file")
    assert ran["stdout"] == STORE + "\n", ran
    read = await call("read", transaction=transaction, path="page")
    assert read["contents"] == "two\n" and read["next_offset"] is None, read
    assert (await call("read", transaction=transaction, path="page", offset=2))["contents"] == "o\n"
    assert "dir/" in (await call("read", transaction=transaction, path="."))["entries"]
    await refused("leads out of the store", "read", transaction=transaction, path="/etc/passwd")
    await refused("leads out of the store", "read", transaction=transaction, path="../..")
    await refused("has no 'none'", "read", transaction=transaction, path="none")
    status = await call("status", transaction=transaction)
    assert {change["path"] for change in status["changes"]} >= {"page", "dir/file"}, status
    diff = await call("diff", transaction=transaction, paths=["page"])
    assert "-one\n+two\n" in diff["changes"][0]["diff"], diff
    assert len((await call("diff", transaction=transaction, stat=True))["changes"]) == 3
    await call("savepoint", transaction=transaction, name="-before")
    await call("run", transaction=transaction, command="rm -r dir")
    await call("rollback", transaction=transaction, name="-before")
    await refused("has no savepoint", "rollback", transaction=transaction, name="other")

    # Two attempts from its state, of which one becomes part of it.
    inner = [await call("begin", within=transaction, label=name) for name in ("bad", "good")]
    for number, attempt in enumerate(inner):
        command = f"cat dir/file; echo {number} > attempt"
        ran = await call("run", transaction=attempt["transaction"], command=command)
        assert ran["stdout"] == "x\n", ran
    await call("abort", transaction=inner[0]["transaction"])
    await call("commit", transaction=inner[1]["transaction"])
    assert (await call("read", transaction=transaction, path="attempt"))["contents"] == "1\n"
    part = await call("commit", transaction=transaction, paths=["attempt"])
    assert part["open"] and base("attempt") == "1\n" and base("page") == "one\n", part
    await call("abort", transaction=transaction, paths=["dir"])
    done = await call("commit", transaction=transaction)
    assert base("page") == "two\n" and not os.path.exists(os.path.join(STORE, "dir")), done

    # Two ways from one state, of which one is taken.
    begun = (await call("begin"))["transaction"]
    await call("run", transaction=begun, command="echo common > common")
    fork = await call("fork", transaction=begun, label="other way")
    await call("run", transaction=begun, command="echo worse > way")
    ran = await call("run", transaction=fork["transaction"], command="cat common; echo better > way")
    assert ran["stdout"] == "common\n", ran
    await call("commit", transaction=fork["transaction"])
    await call("abort", transaction=begun)
    assert base("way") == "better\n" and base("common") == "common\n"
    await refused("no open transaction", "fork", transaction=begun)

    # A conflict, and its sides.
    one, other = [(await call("begin"))["transaction"] for _ in range(2)]
    await call("run", transaction=one, command="echo mine > page")
    await call("run", transaction=other, command="echo theirs > page")
    await call("commit", transaction=other)
    error = await refused("page", "commit", transaction=one)
    assert error["exit_code"] == 75 and "conflicts" in error["hint"], error
    conflicts = (await call("conflicts", transaction=one))["conflicts"]
    assert "+mine" in conflicts[0]["mine"] and "+theirs" in conflicts[0]["theirs"], conflicts
    await refused("page", "refresh", transaction=one)
    await call("conflicts", transaction=one)
    await call("commit", transaction=one, take_mine=str(conflicts[0]["number"]))
    assert base("page") == "mine\n"

    # What was committed.
    commits = (await call("log", limit=3))["commits"]
    assert len(commits) == 3 and commits[0]["commit"] == first + 5, commits
    shown = await call("show", commit=commits[0]["commit"])
    assert "+mine" in shown["changes"][0]["diff"], shown
    listed = await call("undo", commits=[commits[0]["commit"]], dry_run=True)
    assert listed["changes"] and base("page") == "mine\n", listed
    await call("undo", commits=[commits[0]["commit"]])
    assert base("page") == "theirs\n"
    await call("restore", commit=str(first), paths=["page"])
    assert base("page") == "one\n"

    # An outcome that is longer than a pipe holds.
    program = next(word for word in COMMAND if word.endswith("/atomdir"))
    change = "for n in $(seq 1500); do echo $WHO > conflict-$n; done"
    other = f"WHO=other {program} run -q --in none -- sh -c '{change}'"
    await refused("conflicts", "run", command=f"export WHO=mine; {change}; {other}", retry=0)
    await call("run", command="rm conflict-*")

    # A commit that takes itself back unless it is confirmed.
    last = (await call("begin"))["transaction"]
    await call("run", transaction=last, command="echo confirmed > page")
    done = await call("commit", transaction=last, confirm="1h")
    assert done["confirm_seconds"] > 0, done
    await call("confirm", commit=done["commit"])

    # Errors say what is wanted.
    await refused("must be a whole number", "abort", transaction="7")
    await refused("the parameters are", "abort", transaction=7, path="x")
    await refused("leave one of them out", "run", transaction=7, command="x", label="y")
    error = await refused("777777", "status", transaction=777777)
    assert error["hint"], error
    assert (await call("status"))["transactions"] == []
    assert used == tools, used ^ tools


async def main():
    parameters = StdioServerParameters(command=COMMAND[0], args=COMMAND[1:], env=dict(os.environ))
    async with stdio_client(parameters) as (reader, writer):
        async with ClientSession(reader, writer) as session:
            await talk(session)


asyncio.run(main())
