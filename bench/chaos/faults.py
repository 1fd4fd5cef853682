"""What the chaos benchmark does to a job: kills, stops, stalls, called-off changes, changes, overload.

Each function takes a Run (chaos.py) and returns what it did, in a few words. A fault that takes a
member out of the world says so by run.expect_loss(); any other loss is the job's mistake.
"""

import os
import signal
import subprocess
import time

SILENCE_S = 2.0  # REWIRE_SILENCE_MS of the jobs
BUSY = ["/bin/sh", "-c", "while :; do :; done"]


def _signal(pid, number):
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass  # It had ended by itself: the end of the run tells whether it was allowed to.


def _survivable(run, victims):
    """Whether the state outlives these members: ZeRO-1 has one copy of a shard, in the next slot."""
    slots = sorted(s for s, _, _ in victims)
    size = len(run.world())
    if len(victims) >= size:
        return False
    if run.zero == 0:
        return True
    return not any((s + 1) % size in slots for s in slots)


def _victims(run, most):
    world = run.world()
    count = run.random.randint(1, min(most, len(world) - 1))
    victims = run.random.sample(world, count)
    while not _survivable(run, victims):
        victims.pop()
    return victims


def kill_some(run):
    victims = _victims(run, 2)
    run.expect_loss(m for _, m, _ in victims)
    for _, _, pid in victims:
        _signal(pid, signal.SIGKILL)
    return "kill " + " ".join(f"slot {s}" for s, _, _ in sorted(victims))


def stop_one(run):
    """A member that hangs is lost; when it goes on it ends."""
    slot, member, pid = _victims(run, 1)[0]
    run.expect_loss([member])
    _signal(pid, signal.SIGSTOP)
    run.wait_without(member)
    _signal(pid, signal.SIGCONT)
    return f"stop slot {slot}"


def _stall(run, pids, seconds):
    for pid in pids:
        _signal(pid, signal.SIGSTOP)
    time.sleep(seconds)
    run.random.shuffle(pids)
    for pid in pids:
        _signal(pid, signal.SIGCONT)
        time.sleep(run.random.choice([0, 0, 0.05, 0.3]))


def pause_one(run):
    seconds = run.random.uniform(0.1, SILENCE_S / 2)
    slot, _, pid = run.random.choice(run.world())
    _stall(run, [pid], seconds)
    return f"pause slot {slot} for {seconds:.1f} s"


def stall_members(run):
    seconds = SILENCE_S * run.random.uniform(0.5, 2)
    _stall(run, [pid for _, _, pid in run.world()], seconds)
    return f"stop all members for {seconds:.1f} s"


def stall_host(run):
    seconds = SILENCE_S * run.random.uniform(0.5, 2)
    pids = [pid for _, _, pid in run.world()] + [run.agent(), run.job.process.pid]
    _stall(run, pids, seconds)
    return f"stop members, agent and launcher for {seconds:.1f} s"


def stall_agent(run):
    seconds = SILENCE_S * run.random.uniform(0.2, 2)
    _stall(run, [run.agent()], seconds)
    return f"stop the agent for {seconds:.1f} s"


def kill_agent(run):
    _signal(run.agent(), signal.SIGKILL)
    return "kill the agent"


def overload(run):
    seconds = run.random.uniform(1, 2 * SILENCE_S)
    count = run.random.choice([4, 8, 16])
    busy = [subprocess.Popen(BUSY) for _ in range(count)]
    try:
        time.sleep(seconds)
    finally:
        for process in busy:
            process.kill()
            process.wait()
    return f"{count} busy processes for {seconds:.1f} s"


# ---- changes ------------------------------------------------------------------------------------

def resize(run):
    size = run.random.choice([n for n in range(2, run.most + 1) if n != len(run.world())])
    run.change("resize", size)
    return f"resize to {size}"


def rebuild(run):
    run.change("rebuild")
    return "rebuild"


def drain(run):
    if len(run.world()) < 2:
        return resize(run)
    slot, member, _ = run.random.choice(run.world())
    run.change("drain", member)
    return f"drain slot {slot}"


def replace(run):
    slot, member, _ = run.random.choice(run.world())
    run.change("replace", member)
    return f"replace slot {slot}"


# ---- changes that are called off ------------------------------------------------------------------

def _begin_grow(run):
    size = min(run.most, len(run.world()) + run.random.randint(1, 2))
    if size == len(run.world()):
        run.change("resize", size - 1)
        size = run.most
    grow = run.begin("resize", size)
    # Under ZeRO-1 a death right after the change is not survived (README), so it comes before.
    time.sleep(run.random.uniform(0, 0.1 if run.zero else 0.6))
    return grow


def drain_during_grow(run):
    grow = _begin_grow(run)
    slot, member, _ = run.random.choice(run.world())
    run.change("drain", member, "--within", "60s")
    run.end(grow)
    return f"drain slot {slot} with a deadline during a grow"


def kill_during_grow(run):
    grow = _begin_grow(run)
    what = kill_some(run) if len(run.world()) > 1 else "nothing"
    run.end(grow)
    return f"{what} during a grow"


def kill_joiner(run):
    """Its change fails, or its death is a loss of the new world."""
    grow = _begin_grow(run)
    known = {m for _, m, _ in run.world()}
    joiners = [(m["member"], m["pid"]) for m in run.job.status()["members"] if m["member"] not in known and m.get("pid")]
    for member, pid in joiners[:1]:
        run.expect_loss([member])
        _signal(pid, signal.SIGKILL)
    run.end(grow)
    return f"kill {len(joiners[:1])} joiner during a grow"


# More often what once ended jobs.
ALL = [kill_some, kill_some, stop_one, pause_one, stall_members, stall_members, stall_host, stall_host, stall_agent,
       kill_agent, overload, resize, rebuild, drain, replace, drain_during_grow, kill_during_grow, kill_joiner]
