"""Faults that the chaos benchmark injects into a job: kills, stops, stalls, changes, overload.

run.py chooses the faults by possible() and deadly(). A fault is a function that takes a Run
(run.py) and returns a short description of the injected fault. The function predicts the outcome
before the injection. run.expect_loss() names members that the world may lose. run.must_end() says
that the job cannot survive the fault, and run.may_end that the job need not. Every outcome that was
not predicted is an error of the job.
"""

import signal
import subprocess
import time

import processes
from job import JobError

SILENCE_S = 3.0  # the default of REWIRE_SILENCE_MS, in seconds
BUSY = ["/bin/sh", "-c", "while :; do :; done"]
# A joiner that is stopped in one of these phases keeps the change from its commit.
BEFORE_ARMED = ("RESERVE", "PREPARE", "READY")
# A job must stop with this reason if a part of its state has no living copy.
STATE_IS_LOST = "no longer exists on any member"


# ---- members --------------------------------------------------------------------------------------

def _kill(run, victims):
    """Kills members of the world at the same time."""
    run.expect_loss(m for _, m, _ in victims)
    # All victims are stopped first, so that none can help to replace another before its own death.
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for _, _, pid in victims:
            processes.send(pid, number)
    return "kill " + " ".join(f"slot {s}" for s, _, _ in sorted(victims))


def _survivable(run, count):
    """Returns up to `count` random members of the world that the job can lose together."""
    world = run.world()
    victims = run.random.sample(world, min(count, len(world) - 1))
    while not run.survives({s for s, _, _ in victims}, len(world)):
        victims.pop()
    return victims


def kill_one(run):
    return _kill(run, _survivable(run, 1))


def kill_two(run):
    """Kills up to two members; under ZeRO-1 no neighbours, as one has the other's copy."""
    return _kill(run, _survivable(run, 2))


def stop_one(run):
    """Stops a member until the world loses it, and continues it; the member must then end."""
    slot, member, pid = _survivable(run, 1)[0]
    run.expect_loss([member])
    processes.send(pid, signal.SIGSTOP)
    run.wait(lambda: all(m != member for _, m, _ in run.world()), f"the loss of member {member}")
    processes.send(pid, signal.SIGCONT)
    run.wait(lambda: processes.has_ended(pid), f"the end of lost member {member} after its SIGCONT")
    return f"stop slot {slot} for longer than {SILENCE_S} s"


def pause_one(run):
    """Stops a member for a shorter time than the silence, so that the world keeps the member."""
    seconds = run.random.uniform(0.1, SILENCE_S / 2)
    slot, _, pid = run.random.choice(run.world())
    _stall(run, [pid], seconds)
    return f"stop slot {slot} for {seconds:.1f} s"


# ---- the whole host, and the control plane ----------------------------------------------------------

def _stall(run, pids, seconds):
    """Stops processes for some time, and continues them in random order."""
    for pid in pids:
        processes.send(pid, signal.SIGSTOP)
    time.sleep(seconds)
    run.random.shuffle(pids)
    for pid in pids:
        processes.send(pid, signal.SIGCONT)
        time.sleep(run.random.choice([0, 0, 0.05, 0.3]))


def stall_members(run):
    seconds = SILENCE_S * run.random.uniform(0.5, 1.5)
    _stall(run, [pid for _, _, pid in run.world()], seconds)
    return f"stop all members for {seconds:.1f} s"


def stall_host(run):
    seconds = SILENCE_S * run.random.uniform(0.5, 1.5)
    _stall(run, [pid for _, _, pid in run.world()] + [run.agent(), run.launcher(), run.job.process.pid], seconds)
    return f"stop members, agent, launcher and guard for {seconds:.1f} s"


def stall_members_and_agent(run):
    seconds = SILENCE_S * run.random.uniform(0.5, 1.5)
    _stall(run, [pid for _, _, pid in run.world()] + [run.agent()], seconds)
    return f"stop members and agent for {seconds:.1f} s"


def stall_agent(run):
    seconds = SILENCE_S * run.random.uniform(0.2, 1.5)
    _stall(run, [run.agent()], seconds)
    return f"stop the agent for {seconds:.1f} s"


def kill_agent(run):
    processes.send(run.agent(), signal.SIGKILL)
    return "kill the agent"


def overload(run):
    """Injects another fault while 4, 8 or 16 processes keep the processors busy."""
    count = run.random.choice([4, 8, 16])
    busy = [subprocess.Popen(BUSY) for _ in range(count)]
    try:
        fault = run.random.choice([f for f in possible(run) if f is not overload])
        what = fault(run)
        time.sleep(run.random.uniform(0, 1))
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return f"{what}, with {count} busy processes"


def second_job(run):
    """Starts a second job of the same name; `rewire run` must refuse it."""
    second = subprocess.run([run.job.rewire, "run", "--dir", str(run.job.runtime), "--job", "chaos", "--no-preload",
                             "--", "/bin/true"], capture_output=True, text=True, timeout=60, check=False)
    if second.returncode == 0 or "runs already" not in second.stderr:
        raise JobError(f"a second job of the same name: status {second.returncode}: {second.stderr.strip()}")
    return "start a second job of the same name"


# ---- changes ------------------------------------------------------------------------------------

def resize(run):
    size = run.random.choice([n for n in range(1, run.most + 1) if n != len(run.world())])
    before = len(run.world())
    expected = size if run.change("resize", size) else before
    if len(run.world()) != expected:
        raise JobError(f"the world has {len(run.world())} members, not {expected}, after `rewire resize {size}`")
    return f"resize to {size}"


def rebuild(run):
    run.change("rebuild")
    return "rebuild"


def drain(run):
    slot, member, _ = run.random.choice(run.world())
    run.change("drain", member)
    return f"drain slot {slot}"


def reclaim(run):
    """Sends SIGTERM, which is a reclaim notice."""
    slot, member, pid = run.random.choice(run.world())
    processes.send(pid, signal.SIGTERM)
    run.wait(lambda: all(m != member for _, m, _ in run.world()), f"departure of member {member}")
    return f"reclaim slot {slot}"


def replace(run):
    slot, member, _ = run.random.choice(run.world())
    run.change("replace", member)
    return f"replace slot {slot}"


# ---- faults during a grow -----------------------------------------------------------------------

def _begin_grow(run):
    if len(run.world()) == run.most:
        run.change("resize", run.most - 2)
    return run.begin("resize", run.random.randint(min(len(run.world()) + 1, run.most), run.most))


def _wait_for_joiner(run):
    """Returns (member, pid) of a joining process; None: no process joined before the deadline."""
    deadline = time.monotonic() + SILENCE_S
    while time.monotonic() < deadline:
        status = run.job.status()
        world = {m["member"] for m in status["world"]["members"]}
        for m in status["members"]:
            if m["member"] not in world and m["state"] == "joining" and m.get("pid"):
                return m["member"], m["pid"]
        if status["transition"] is None and status["steady"]:
            return None
    return None


def _hold(run):
    """Begins a grow and stops its joiner.

    Returns (command, joiner); joiner is None if none was found. While the joiner is stopped the
    change cannot be committed, so that a member's death occurs before the commit. If the joiner was
    stopped too late, a death may occur between the commit and the first copies of the new world.
    ZeRO-1 does not survive such a death (docs/limits.md).
    """
    grow = _begin_grow(run)
    time.sleep(run.random.uniform(0, 0.1))
    joiner = _wait_for_joiner(run)
    if joiner is not None:
        processes.send(joiner[1], signal.SIGSTOP)
    if joiner is None or run.job.status()["phase"] not in BEFORE_ARMED:
        run.may_end = run.may_end or run.zero == 1
    return grow, joiner


def _release(joiner):
    if joiner is not None:
        processes.send(joiner[1], signal.SIGCONT)


def kill_while_preparing(run):
    grow, joiner = _hold(run)
    what = _kill(run, _survivable(run, 1))
    _release(joiner)
    run.finish(grow)
    return f"{what} while a grow prepares"


def kill_during_grow(run):
    """Kills a member up to 0.6 s after the beginning of a grow."""
    grow = _begin_grow(run)
    run.may_end = run.may_end or run.zero == 1
    time.sleep(run.random.uniform(0, 0.6))
    what = _kill(run, _survivable(run, 1))
    run.finish(grow)
    return f"{what} during a grow"


def kill_joiner(run):
    """Kills a joiner: either the grow fails, or the new world loses the member."""
    grow, joiner = _hold(run)
    if joiner is not None:
        run.expect_loss([joiner[0]])
        processes.send(joiner[1], signal.SIGKILL)
    run.finish(grow)
    return "kill a joiner" if joiner is not None else "grow without a joiner to kill"


def drain_during_grow(run):
    grow = _begin_grow(run)
    time.sleep(run.random.uniform(0, 0.3))
    slot, member, _ = run.random.choice(run.world())
    run.change("drain", member, "--within", "60s")
    run.finish(grow)
    return f"drain slot {slot} with a deadline during a grow"


def kill_agent_during_grow(run):
    grow = _begin_grow(run)
    time.sleep(run.random.uniform(0, 0.4))
    kill_agent(run)
    run.finish(grow)
    return "kill the agent during a grow"


# ---- faults that no job survives ----------------------------------------------------------------

def kill_launcher(run):
    run.must_end(statuses=[128 + signal.SIGKILL])
    processes.send(run.launcher(), signal.SIGKILL)
    return "kill the launcher"


def kill_guard(run):
    run.must_end(statuses=[-signal.SIGKILL])
    processes.send(run.job.process.pid, signal.SIGKILL)
    return "kill the guard"


def kill_launcher_and_guard(run):
    run.must_end(statuses=[-signal.SIGKILL])
    run.folder_stays = True
    pids = [run.launcher(), run.job.process.pid]
    for number in (signal.SIGSTOP, signal.SIGKILL):
        for pid in pids:
            processes.send(pid, number)
    return "kill launcher and guard"


def kill_all(run):
    run.must_end()
    return _kill(run, run.world())


def kill_neighbours(run):
    """Under ZeRO-1: kills a slot and the next one, which has the only copy of its state."""
    world = run.world()
    first = run.random.randrange(len(world))
    run.must_end(STATE_IS_LOST)
    return _kill(run, [world[first], world[(first + 1) % len(world)]])


def kill_one_without_copies(run):
    run.must_end(STATE_IS_LOST)
    return _kill(run, [run.random.choice(run.world())])


# ---- the choice of faults -----------------------------------------------------------------------

HARMLESS = [pause_one, stall_members, stall_host, stall_members_and_agent, stall_agent, kill_agent, overload,
            second_job, resize, rebuild, replace, kill_agent_during_grow]
# Faults that need at least two members.
OF_TWO = [drain, reclaim, drain_during_grow]
# Faults that also need REWIRE_BUDDY=1, because a member dies.
OF_TWO_WITH_COPIES = [kill_one, kill_one, kill_two, kill_two, stop_one, kill_while_preparing, kill_while_preparing,
                      kill_during_grow, kill_joiner, kill_joiner]


def possible(run):
    """Returns the faults that the job in its present state survives."""
    size = len(run.world())
    return HARMLESS + (OF_TWO if size > 1 else []) + (OF_TWO_WITH_COPIES if size > 1 and run.buddy else [])


def deadly(run):
    """Returns the faults that the job in its present state does not survive."""
    size = len(run.world())
    found = [kill_launcher, kill_guard, kill_launcher_and_guard, kill_all]
    if run.zero == 1 and size > 2:
        found.append(kill_neighbours)
    if not run.buddy and size > 1:
        found += [kill_one_without_copies] * 2
    return found
