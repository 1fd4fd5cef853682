"""Small runs of moe_perf and moe-exec_perf have every figure that docs/moe.md relies on, under its name.

usage: figures_test.py BUILD
"""

import json
import subprocess
import sys

PLANS = ["--seeds", "1", "--batches", "2", "--plans", "100", "--inputs", "100", "--layouts", "10"]
# Planning takes 50 us of virtual time, so the figures do not depend on the machine.
LAYERS = ["--devices", "2", "--layers", "1", "--micro-batches", "2", "--step", "2", "--seeds", "1", "--plan-us", "50"]


def figures(build, program, options):
    done = subprocess.run([f"{build}/bin/{program}", *options, "--json"], stdout=subprocess.PIPE, check=True)
    return json.loads(done.stdout)


def main():
    build, wrong = sys.argv[1], []

    def expect(what, holds):
        if not holds:
            wrong.append(what)

    plans = figures(build, "moe_perf", PLANS)
    names = []
    for devices in (2, 4, 8):
        names += [f"{part}_ep{devices}" for part in ("token_straggler_cut", "gemm_straggler_cut", "copies")]
        # LLEP by its paper's gate and without a gate.
        for gate in ("1_0", "1_3"):
            names += [f"{part}_llep_gate_{gate}_ep{devices}" for part in ("token_straggler_cut", "copies")]
        names.append(f"shifting_max_over_mean_ep{devices}")
    # The whole plan as the runtime makes it, and one part of it alone.
    names += ["plan_us_median_e128_ep8", "plan_us_median_e128_ep8_copies_10x_slower", "balance_moves_us_median_e128_ep8"]
    names += [f"relayout_speedup_vs_laer_five_iterations_n{n}" for n in (64, 128, 256, 512, 1024)]
    names += ["relayout_cost_ratio_out_of_sample", "relayout_cost_ratio_five_in_sample"]
    for name in names:
        expect(f"moe_perf has no {name}", name in plans)
    expect("moe_perf: ranks made different plans", plans.get("plan_hash_equal") is True)
    expect("moe_perf: a gate of 1.3 never opens more than one of 1.0",
           all(plans[f"copies_llep_gate_1_3_ep{n}"] <= plans[f"copies_llep_gate_1_0_ep{n}"] for n in (2, 4, 8)))

    layers = figures(build, "moe-exec_perf", LAYERS)
    settings = [f"layers{count}_step{step}" for count, step in ((2, 12), (2, 4), (2, 2), (2, 1), (16, 12), (16, 1))]
    for setting in settings:
        expect(f"moe-exec_perf has no growth of {setting}", f"critical_path_growth_worst_{setting}" in layers)
    expect("moe-exec_perf: planning is not charged", layers.get("plan_us_charged") == 50)
    for name in ("bit_equal_fwd", "bit_equal_bwd", "bit_equal_dw_whole"):
        expect(f"moe-exec_perf: {name} is not true", layers.get(name) is True)

    print("\n".join(wrong))
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
