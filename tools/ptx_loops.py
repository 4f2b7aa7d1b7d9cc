#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What ptxas makes of the products and convolutions of models: registers, spills, and the share of multiply-adds among the
instructions of the innermost loop that has any.

    tools/ptx_loops.py ASHLAR sm_80[,sm_90,...] MODEL.onnx...

Needs ptxas and nvdisasm (of the CUDA toolkit, or the package nvidia-cuda-nvdisasm): from $PTXAS and $NVDISASM, else from
PATH. A table for each model, a row for each kernel whose chunks are blocks of threads and that multiplies; in the end the
share over all of them, each counted by its operations. PTX is for the GPU that is named, sm_90's for newer ones. Ends with 1
where a kernel is refused or spills, with 77 without the tools."""
import collections, os, re, shutil, subprocess, sys, tempfile

PTXAS = os.environ.get("PTXAS") or shutil.which("ptxas")
NVDISASM = os.environ.get("NVDISASM") or shutil.which("nvdisasm")


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


def loop_of(text):
    """(multiply-adds, instructions) of the loop with the largest share of them."""
    code, labels, best = [], {}, (0, 0)
    for line in text.splitlines():
        label = re.match(r"\s*(\.L\w+):", line)
        inst = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z0-9_.]+)(.*)", line)
        if label:
            labels[label.group(1)] = len(code)
        elif inst:
            code.append((inst.group(1), inst.group(2)))
    for i, (name, rest) in enumerate(code):
        to = re.search(r"`\((\.L\w+)\)", rest)
        if name != "BRA" or not to or labels.get(to.group(1), i + 1) > i:
            continue
        body = [n for n, _ in code[labels[to.group(1)]:i + 1]]
        found = (sum(n.startswith("FFMA") for n in body), len(body))
        if found[0] >= 64 and (not best[1] or found[0] / found[1] > best[0] / best[1]):
            best = found
    return best


def assemble(ptx, sm, folder):
    """(registers, bytes of spills, multiply-adds, instructions); None: refused."""
    source, cubin = os.path.join(folder, "k.ptx"), os.path.join(folder, "k.cubin")
    with open(source, "w") as f:
        f.write(ptx)
    made = run(PTXAS, "-v", "-arch=" + sm, "-o", cubin, source)
    if made.returncode:
        print(made.stderr[:400])
        return None
    registers = int(re.search(r"Used (\d+) registers", made.stderr).group(1))
    spills = sum(map(int, re.findall(r"(\d+) bytes spill stores", made.stderr)))
    return (registers, spills) + loop_of(run(NVDISASM, "-c", cubin).stdout)


def table(ashlar, sms, model, folder):
    good = True
    for sm in sms:
        device = "CUDA:" + sm
        made = run(ashlar, "inspect", "asm", "--no-cache", "--device", device, model)
        plan = run(ashlar, "inspect", "plan", "--device", device, model)
        if made.returncode or plan.returncode:
            print(made.stderr + plan.stderr)
            return False
        parts = re.split(r"^; kernel (\d+).*\n", made.stdout, flags=re.M)
        kernels = dict(zip(map(int, parts[1::2]), parts[2::2]))
        steps = collections.defaultdict(list)
        for k, name, chunks, flop in re.findall(r'kernel k(\d+) "([^"]*)", (\d+) chunks.*?, (\d+) flop', plan.stdout):
            if re.search(r"conv|matmul", name):
                steps[int(k)].append((name, int(chunks), int(flop)))
        print(f"\n{os.path.basename(os.path.dirname(os.path.abspath(model)))}, {sm}\n")
        print("| kernel | steps | Gflop each | blocks | threads | registers | spills | multiply-adds, % |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|")
        adds = instructions = 0
        for k, of in sorted(steps.items()):
            threads = int(re.search(r"\.maxntid (\d+)", kernels[k]).group(1))
            found = assemble(kernels[k], sm, folder)
            good = good and found and not found[1]
            if not found or "bar.sync" not in kernels[k]:
                continue
            registers, spills, fma, size = found
            name, chunks, flop = of[0]
            adds += flop * len(of)
            instructions += flop * len(of) * size / max(fma, 1)
            print(f"| {k} {name} | {len(of)} | {flop / 1e9:.3f} | {chunks} | {threads} | {registers} | {spills} | "
                  f"{100 * fma / max(size, 1):.1f} |")
        print(f"\nall of it: {100 * adds / max(instructions, 1):.1f} % multiply-adds")
    return good


def main():
    if not PTXAS or not NVDISASM:
        print("no ptxas or no nvdisasm")
        return 77
    with tempfile.TemporaryDirectory() as folder:
        good = [table(sys.argv[1], sys.argv[2].split(","), model, folder) for model in sys.argv[3:]]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
