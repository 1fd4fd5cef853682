#!/usr/bin/env python3
"""jax_worker.py FOLDER STEPS: an ordinary JAX job of several processes, which knows nothing of Rewire.

Each process has one device. Trains a small model until the file FOLDER/stop, or for STEPS steps if not 0.
"""
import os
import pathlib
import sys

RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
FOLDER, STEPS = pathlib.Path(sys.argv[1]), int(sys.argv[2])
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # processes may share a GPU
os.environ.setdefault("XLA_FLAGS", "--xla_gpu_deterministic_ops=true")

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402
import numpy as np  # noqa: E402

WIDTH, BATCH, RATE = 256, 64, 0.05


def loss_of(weights, x):
    y = x
    for weight in weights:
        y = jnp.tanh(y @ weight)
    return jnp.mean(jnp.square(y - x[:, ::-1]))


def step(weights, x, flag):
    loss, gradients = jax.value_and_grad(loss_of)(weights, x)
    gradients = jax.lax.pmean(gradients, "members")
    weights = [w - RATE * g for w, g in zip(weights, gradients)]
    return weights, jax.lax.pmean(loss, "members"), jax.lax.pmax(flag, "members")


def main():
    jax.distributed.initialize(f"127.0.0.1:{int(os.environ['MASTER_PORT'])}", WORLD, RANK,
                               local_device_ids=[RANK % int(os.environ.get("GPUS", "1"))])
    trained = jax.pmap(step, axis_name="members")
    random = np.random.default_rng(0)
    weights = [jnp.asarray(random.standard_normal((1, WIDTH, WIDTH), np.float32) / WIDTH**0.5) for _ in range(4)]
    random = np.random.default_rng(1 + RANK)
    with open(FOLDER / f"losses.{RANK}", "w", encoding="ascii") as losses:
        done = 0
        while True:
            done += 1
            x = random.standard_normal((1, BATCH, WIDTH), np.float32)
            last = done == STEPS or (STEPS == 0 and RANK == 0 and (FOLDER / "stop").exists())
            weights, loss, flag = trained(weights, x, np.asarray([int(last)]))
            losses.write(float(loss[0]).hex() + "\n")
            if done == 3:
                losses.flush()
                (FOLDER / f"ready.{RANK}").touch()
            if int(flag[0]):
                break


main()
