"""usage: contracts.py TANDEM SAMPLE
Holds one sample to the engine's contracts: 50 steps of it, made small, give the same bits on one device, cut over two or three,
on the accelerator alone, for any number of cores and lanes, on every instruction set, in whatever order steps overlap, at every
level of optimization, in one go or resumed on other devices; and every run copies and holds what its plan says."""
import pathlib
import signal
import subprocess
import sys

signal.signal(signal.SIGINT, signal.default_int_handler)  # ignored where a shell runs this in the background; a child keeps that

from runs import SKIPPED, Runs, check, expect_same_parameters, shared_data

STEPS = 50
SMALL_DLRM = ["model.dim=8", "model.bottom=[32, 16]", "model.top=[32]"]
SMALL_LOG = ["data.batch=128", "data.train_rows=2900", "data.test_rows=500", "data.dense=5",
             "data.table_rows=[3000, 1000, 500, 100, 40, 10]"]

# Configuration, the settings that make it small, and the data that must be at hand. Each has a short last batch within 50 steps.
SAMPLES = {
    "dlrm": ("dlrm/dlrm.yaml", SMALL_DLRM + SMALL_LOG, None),
    "dlrm_bags": ("dlrm/dlrm.yaml", SMALL_DLRM + SMALL_LOG + ["data.bag=4", "model.pooling=mean"], None),
    "wide_deep": ("wide_deep/wide_deep.yaml", ["model.hidden=[32, 16]", "data.most_rows=3000"], None),
    "deepfm": ("deepfm/deepfm.yaml", ["model.dim=8", "model.hidden=[32]"] + SMALL_LOG, None),
    "movielens": ("dlrm/movielens.yaml", ["data.most_rows=10000"], "movielens-100k/ratings.tsv"),
    "criteo": ("dlrm/criteo.yaml", SMALL_DLRM + ["data.batch=128", "data.table_rows=2000"], "criteo/train.tsv"),
}

CPU_ONLY = ["devices=[cpu]", "placement={default: cpu}"]
ACCEL_ONLY = ["placement.rules=[]", "devices.accel.memory=1GiB"]
# The first table, the first layer of each MLP and what belongs to them on a second accelerator.
THREE = ["devices=[cpu, {name: accel, backend: emulated}, {name: second, backend: emulated, memory: 8MiB}]",
         "placement.rules=[{match: \"*.0/*\", target: second}]", "offload.embedding=cpu"]
REFERENCE = ["cpu.gemm=reference"]


def cores(n):
    return [f"devices=[{{name: cpu, cores: {n}}}, {{name: accel, backend: emulated, cores: {n}}}]"]


def over_three(runs):
    run = runs.train("three", THREE)
    held = {device["name"]: device["parameter_bytes"] for device in run["devices"]}
    check(len(held) == 3 and all(held.values()), f"each of three devices has parameters: {held}")
    return run


def any_split_gives_the_same_bits(runs):
    cut = runs.train("cut")
    check(cut["steps"] == STEPS and cut["plan"]["cut_edges"] > 0, "the cut run is cut")
    expect_same_parameters({
        "cut": cut,
        "cpu alone": runs.train("cpu_alone", CPU_ONLY),
        "accel alone": runs.train("accel_alone", ACCEL_ONLY),
        "cut over three": over_three(runs),
        "cut, once more": runs.train("again"),
    })
    other = runs.train("other_seed", ["train.seed=12345"])
    check(other["parameters_checksum"] != cut["parameters_checksum"], "another seed gives other parameters")


def cores_and_lanes_do_not_change_bits(runs):
    ends = {}
    for n in [1, 2, 3]:
        ends[f"cpu alone, {n} cores"] = runs.train(f"cpu_{n}", CPU_ONLY + [f"devices=[{{name: cpu, cores: {n}}}]"])
        ends[f"cut, {n} cores each"] = runs.train(f"cut_{n}", cores(n))
    ends["cpu alone, 3 lanes"] = runs.train("cpu_lanes", CPU_ONLY + ["cpu.lanes=3"])
    ends["cut, 2 lanes each"] = runs.train("cut_lanes", ["cpu.lanes=2", "devices.accel.options=lanes=2"])
    expect_same_parameters(ends)


def available(runs, isa):
    try:
        runs.call(runs.words("plan", CPU_ONLY), isa)
        return True
    except AssertionError as error:
        check("this processor cannot run it" in str(error), str(error))
        return False


def instruction_sets_do_not_change_bits(runs):
    ends = {"cpu alone": runs.train("reference", CPU_ONLY + REFERENCE)}
    for isa in ["baseline", "avx2", "avx512", "avx512_bf16", "amx_bf16"]:
        if isa != "baseline" and not available(runs, isa):
            print(f"{isa}: this processor does not have it, left out")
            continue
        ends[f"cpu alone, {isa}"] = runs.train(f"cpu_{isa}", CPU_ONLY + REFERENCE, isa)
        ends[f"cut, {isa}"] = runs.train(f"cut_{isa}", REFERENCE, isa)
    expect_same_parameters(ends)


def overlap_does_not_change_bits(runs):
    early = runs.train("early", ["train.early_lookup=on"])
    check(early["early_lookup"]["bags_early"] > 0, "with early lookup on, some bags are looked up early")
    late = runs.train("late", ["train.early_lookup=off"])
    check(late["early_lookup"]["bags_early"] == 0, "with early lookup off, none is")
    expect_same_parameters({"early lookup": early, "no early lookup": late,
                            "no pipeline": runs.train("serial", ["train.pipeline=off"])})


def keeping_tables_elsewhere_does_not_change_bits(runs):
    on_disk = pathlib.Path(sys.argv[1]).resolve().parent
    file = ["tables.storage=file", f"tables.path={on_disk}"]
    ends = {"memory": runs.train("memory"), "sparse": runs.train("sparse", ["tables.storage=sparse"]),
            "file": runs.train("file", file), "file, cpu alone": runs.train("file_cpu", CPU_ONLY + file)}
    half = runs.train("file_then_memory", file + [f"train.steps={STEPS // 2}"])
    check(half["steps"] == STEPS // 2, "the first half ends at its step")
    ends["from file to memory"] = runs.train("file_then_memory", resume=True)
    expect_same_parameters(ends)


def levels_of_optimization_do_not_change_bits(runs):
    ends = {}
    for level in ["O0", "O1", "O2"]:
        ends[f"cpu alone, {level}"] = runs.train(f"cpu_{level}", CPU_ONLY + [f"compile.jit_level={level}"])
        ends[f"cut, {level}"] = runs.train(f"cut_{level}", [f"compile.jit_level={level}"])
    expect_same_parameters(ends)


def full_batches_copy_what_the_plan_says(runs):
    """Contract (c) once more, against the plan alone: two full batches copy exactly its bytes at capacity."""
    plan, run = runs.plan(), runs.train("full", ["train.steps=2"])
    for direction in ["to_device", "to_host"]:
        key = f"{direction}_bytes_per_step"
        check(run["copies"][key] == plan[key] > 0, f"{key}: {run['copies'][key]} copied, {plan[key]} planned")


def resuming_gives_the_same_bits(runs):
    ends = {"straight": runs.train("straight")}
    for name, first, then in [("as it was", [], []), ("from cut to cpu", [], CPU_ONLY), ("from cpu to cut", CPU_ONLY, []),
                              ("from accel to cpu", ACCEL_ONLY, CPU_ONLY), ("from three to cut", THREE, [])]:
        folder = name.replace(" ", "_")
        half = runs.train(folder, first + [f"train.steps={STEPS // 2}"])
        check(half["steps"] == STEPS // 2, "the first half ends at its step")
        ends[name] = runs.train(folder, then, resume=True)
    expect_same_parameters(ends)


def an_interrupted_run_goes_on_where_it_was(runs):
    endless = ["train.epochs=1000000", "train.steps=1000000000", "train.log_every=5"]
    words = runs.words("train", endless, "--run", "interrupted")
    with subprocess.Popen(words, cwd=runs.folder, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        for line in child.stdout:
            if line.startswith("epoch "):
                break
        child.send_signal(signal.SIGINT)
        _, errors = child.communicate()
    check(child.returncode == 130, f"an interrupted run exits with 130, not {child.returncode}: {errors}")
    check("interrupted after step" in errors and "--resume" in errors, f"it says how to go on: {errors}")
    check(not (runs.folder / "interrupted" / "summary.json").exists(), "a run that has not ended leaves no summary.json")
    done = runs.last_checkpoint("interrupted")["steps"]
    check(done >= 5, "the checkpoint holds the steps that were done")
    more = ["train.epochs=1000000", f"train.steps={done + 10}"]
    expect_same_parameters({"straight": runs.train("uninterrupted", more),
                            "interrupted": runs.train("interrupted", more + CPU_ONLY, resume=True)})


CONTRACTS = [any_split_gives_the_same_bits, cores_and_lanes_do_not_change_bits, instruction_sets_do_not_change_bits,
             overlap_does_not_change_bits, levels_of_optimization_do_not_change_bits,
             keeping_tables_elsewhere_does_not_change_bits, full_batches_copy_what_the_plan_says, resuming_gives_the_same_bits,
             an_interrupted_run_goes_on_where_it_was]


def main():
    if len(sys.argv) != 3 or sys.argv[2] not in SAMPLES:
        print(__doc__, "\nsamples:", *SAMPLES, file=sys.stderr)
        return 2
    configuration, settings, data = SAMPLES[sys.argv[2]]
    settings = settings + [f"train.steps={STEPS}", "train.epochs=20", "checkpoint.every=0"]
    if data:
        path = shared_data(data)
        if not path:
            print(f"skipped: {data} is not here; this data may not be copied into the project")
            return SKIPPED
        settings.append(f"data.train={path}")
    failed = 0
    for contract in CONTRACTS:
        with Runs(sys.argv[1], configuration, settings) as runs:
            try:
                contract(runs)
                print(f"holds: {contract.__name__}", flush=True)
            except AssertionError as error:
                failed += 1
                print(f"FAILED: {contract.__name__}\n{error}", flush=True)
    return 1 if failed else 0


sys.exit(main())
