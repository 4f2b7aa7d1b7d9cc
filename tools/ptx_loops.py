#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What ptxas makes of the products and convolutions of models: registers, spills, and the share of multiply-adds among the
instructions of the innermost loop that has any.

    tools/ptx_loops.py [--sums] ASHLAR sm_80[,sm_90,...] MODEL.onnx... [-- OPTIONS]
    tools/ptx_loops.py --products ASHLAR NEST_CUDA sm_80[,sm_90,...] MODEL.onnx...

Needs ptxas and nvdisasm (of the CUDA toolkit, or the package nvidia-cuda-nvdisasm): from $PTXAS and $NVDISASM, else from
PATH. A table for each model, a row for each kernel whose chunks are blocks of threads and that multiplies; in the end the
share over all of them, each counted by its operations, and how long all steps of the model take: a bound from below by
counting, not a measurement. Of a kernel of tiles: the machine code's loop, as often as it runs, on the multiprocessor with
the most blocks; issuing its instructions, its multiply-adds, or the wait for a k-tile, whichever is longer; and no kernel is
quicker than memory. A kernel more in a line takes GAP. PTX is for the GPU that is named, sm_90's for newer ones. With --sums
that end alone is a row of one table. Arguments behind -- go to ashlar (--var batch=32). Ends with 1 where a kernel is refused or
spills, with 77 without the tools.

The second has a row for each layer and kernel that multiplies, and beside what we make of it what nvcc ($NVCC, else from
PATH) makes of the same nest, which NEST_CUDA (tests/nest_cuda of a build with tests) writes as CUDA C. Tile: rows x columns of a
block, in so many slices; split: parts of its sums, which a kernel behind it adds. Spills of either stand behind its registers, in bytes."""
import collections, os, re, shutil, subprocess, sys, tempfile

import explained
from explained import run

PTXAS = os.environ.get("PTXAS") or shutil.which("ptxas")
NVDISASM = os.environ.get("NVDISASM") or shutil.which("nvdisasm")


# multiprocessors, multiply-adds of f32 and of half floats a cycle of one, MHz, bytes of memory a cycle: as in gpus.def
GPUS = {"sm_80": (108, 64, 1024, 1410, 1103), "sm_90": (132, 128, 1300, 1830, 1831), "sm_120": (170, 128, 256, 2407, 744)}
REGISTERS, WAIT, BEGIN, GAP = 65536, 700, 1000, 1.5  # of one; cycles; cycles; microseconds
SHARED, OWN = {"sm_80": 164 << 10, "sm_90": 228 << 10, "sm_120": 100 << 10}, 1 << 10  # bytes of one; what the system takes of a block's
NVCC = os.environ.get("NVCC") or shutil.which("nvcc")


def loop_of(text):
    """(multiply-adds, or matrices, and instructions) of the loop with the largest share of them."""
    code, labels, best = [], {}, (0, 0)
    for line in text.splitlines():
        label = re.match(r"\s*(\.L\w+):", line)
        inst = re.match(r"\s*/\*[0-9a-f]{4,}\*/\s+(?:@!?\w+\s+)?([A-Z0-9_.]+)(.*)", line)
        if label:
            labels[label.group(1)] = len(code)
        elif inst:
            code.append((inst.group(1), inst.group(2)))
    matrices = any(n.startswith(("HMMA", "IMMA")) for n, _ in code)
    counted = ("HMMA", "IMMA") if matrices else ("FFMA",)
    for i, (name, rest) in enumerate(code):
        to = re.search(r"`\((\.L\w+)\)", rest)
        if not name.startswith("BRA") or not to or labels.get(to.group(1), i + 1) > i:
            continue
        body = [n for n, _ in code[labels[to.group(1)]:i + 1]]
        found = (sum(n.startswith(counted) for n in body), len(body))
        if found[0] >= 8 and (not best[1] or found[0] / found[1] > best[0] / best[1]):
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


def k_tiles_of(nest):
    """How often the loop over k-tiles runs, by the nest, and how many each time has; (0, 0): there is none."""
    found = (re.search(r"for %\d+ = 0 \.\. (\d+) step (\d) \{\n(?:[^\n{}]*\n){0,12}\s*wait 0", nest)
             or re.search(r"wait 0\n\s*barrier\n\s*for %\d+ = 0 \.\. (\d+) step (\d) \{", nest))  # which all come before
    return (int(found.group(1)) // int(found.group(2)), int(found.group(2))) if found else (0, 0)


def shared_of(nest):
    """Bytes of a block's shared memory."""
    sizes = {"f64": 8, "i64": 8, "f32": 4, "i32": 4, "u32": 4, "f16": 2, "bf16": 2}
    return sum(-(-int(count) * sizes.get(dtype, 1) // 16) * 16
               for dtype, count in re.findall(r"^shared s\d+: (\w+) (\d+)$", nest, flags=re.M))


def time_of(sm, blocks, threads, k_tiles, shared, found, halves):
    """Cycles of a kernel of tiles."""
    processors, adds, matrices, _, _ = GPUS[sm]
    registers, _, work, size = found
    room = max(1, min(REGISTERS // (threads * -(-registers // 8) * 8), SHARED[sm] // (shared + OWN)))
    left, cycles = -(-blocks // processors), 0
    while left:
        here = min(left, room)
        warps = here * threads // 32
        busy = min(warps, 4)
        per = 16 * 16 * 8 / matrices if halves else 32 / adds  # cycles of one of them, with all four schedulers
        cycles += BEGIN + k_tiles[0] * max(warps * size / busy, warps * work * per * 4 / busy, k_tiles[1] * WAIT)
        left -= here
    return cycles


def table(ashlar, sms, model, options, folder, short):
    good = True
    for sm in sms:
        device = "CUDA:" + sm
        asm, plan, nests = (explained.said(ashlar, "inspect", what, "--device", device, model, *options)
                            for what in ("asm", "plan", "nest"))
        parts = re.split(r"^; kernel (\d+).*\n", asm, flags=re.M)
        kernels = dict(zip(map(int, parts[1::2]), parts[2::2]))
        parts = re.split(r"^# kernel (\d+).*\n", nests, flags=re.M)
        nests = dict(zip(map(int, parts[1::2]), parts[2::2]))
        steps = collections.defaultdict(list)
        main = plan[plan.index("\nsteps\n"):]
        for k, name, chunks, flop, size in re.findall(
                r'kernel k(\d+) "([^"]*)", (\d+) chunks.*?, (\d+) flop, (\d+) bytes', main):
            steps[int(k)].append((name, int(chunks), int(flop), int(size)))
        _, _, _, clock, rate = GPUS[sm]
        title = " ".join([os.path.basename(os.path.dirname(os.path.abspath(model))), *options]) + ", " + sm
        if not short:
            print(f"\n{title}\n")
            print("| kernel | steps | Gflop each | blocks | threads | registers | spills | multiply-adds, % | us each |")
            print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
        adds = instructions = time = tiles = 0
        for k, of in sorted(steps.items()):
            name, chunks, flop, size = of[0]
            least = max(s for _, _, _, s in of) / rate
            threads = int(re.search(r"\.maxntid (\d+)", kernels[k]).group(1))
            found = explained.kept((PTXAS, sm, kernels[k]), lambda: assemble(kernels[k], sm, folder))
            good = good and found and not found[1]
            k_tiles = k_tiles_of(nests[k])
            if not found or not k_tiles[0]:
                time += len(of) * (least / clock + GAP)
                continue
            halves = "mma.sync" in kernels[k]
            registers, spills, fma, code = found
            each = max(time_of(sm, chunks, threads, k_tiles, shared_of(nests[k]), found, halves), least) / clock
            time += len(of) * (each + GAP)
            tiles += len(of) * each
            adds += flop * len(of)
            instructions += flop * len(of) * code / max(fma, 1)
            if short:
                continue
            print(f"| {k} {name} | {len(of)} | {flop / 1e9:.3f} | {chunks} | {threads} | {registers} | {spills} | "
                  f"{100 * fma / max(code, 1):.1f} | {each:.1f} |")
        if short:
            print(f"| {title} | {100 * adds / max(instructions, 1):.1f} | {tiles:.0f} | {time:.0f} |", flush=True)
            continue
        print(f"\nall of it: {100 * adds / max(instructions, 1):.1f} % multiply-adds, tiles {tiles:.0f} us, "
              f"{sum(map(len, steps.values()))} steps {time:.0f} us")
    return good


def nvcc_of(text, sm, folder):
    """(registers, bytes of spills, multiply-adds, instructions) of what nvcc makes of a kernel in CUDA C."""
    source, cubin = os.path.join(folder, "k.cu"), os.path.join(folder, "k.cubin")
    headers = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "tests", "nvcc")
    with open(source, "w") as f:
        f.write(text)
    made = run(NVCC, "-O3", "--fmad=false", "-w", "-cubin", "-arch=" + sm, "-Xptxas", "-v", "-I", headers, "-o", cubin, source)
    if made.returncode:
        sys.exit(made.stderr)
    return (int(re.search(r"Used (\d+) registers", made.stderr)[1]),
            sum(map(int, re.findall(r"(\d+) bytes spill stores", made.stderr)))) + loop_of(run(NVDISASM, "-c", cubin).stdout)


def cell(registers, spills, share):
    return f"{registers}" + (f" + {spills} B" if spills else "") + f" | {share:.1f}"


def products(ashlar, nest_cuda, sms, model, folder):
    """Whether none of ours spills."""
    rows, spilled = collections.defaultdict(dict), 0
    sums = {sm: [0.0, 0.0, 0.0, 0, 100.0, 100.0] for sm in sms}
    for sm in sms:
        found, _ = explained.operations(ashlar, model, sm)
        parts = re.split(r"^// kernel (\d+)\n", explained.said(nest_cuda, sm, model), flags=re.M)
        texts = dict(zip(map(int, parts[1::2]), parts[2::2]))
        same = collections.defaultdict(list)
        for i, op in enumerate(o for o in found if o.layer and o.share):
            same[op.layer, op.kernel, i if not op.tile else 0].append(op)
        theirs, number = {}, collections.Counter()
        for (layer, kernel, _), ops in same.items():
            op = ops[0]
            if kernel not in theirs:
                if f"__launch_bounds__({op.threads}," not in texts.get(kernel, ""):
                    sys.exit(f"{nest_cuda}: kernel {kernel} is another one")
                theirs[kernel] = explained.kept((NVCC, sm, texts[kernel]), lambda: nvcc_of(texts[kernel], sm, folder))
                spilled += op.spills
            registers, spills, works, size = theirs[kernel]
            share = 100 * works / max(size, 1)
            number[layer] += 1
            rows[layer, number[layer]][sm] = (len(ops), f"{op.tile} | {op.split or ''} | " + cell(op.registers, op.spills, op.share)
                                              + " | " + cell(registers, spills, share))
            flop, all_of = op.flop * len(ops), sums[sm]
            least = (op.share, share) if op.tile else (100, 100)
            all_of[:] = [all_of[0] + flop, all_of[1] + flop / op.share, all_of[2] + flop / share, all_of[3] + spills,
                         min(all_of[4], least[0]), min(all_of[5], least[1])]
    print(f"\n{os.path.basename(os.path.dirname(os.path.abspath(model)))}\n")
    print("| layer | " + " | ".join(f"{sm}: so many | tile | split | registers | share, % | nvcc: registers | share, %" for sm in sms)
          + " |\n|---|" + len(sms) * "---:|---|---:|---:|---:|---:|---:|")
    for (layer, _), row in rows.items():
        print(f"| {layer} | " + " | ".join(f"{row[sm][0]} | {row[sm][1]}" if sm in row else " |" * 6 for sm in sms) + " |")
    print()
    for sm, (flop, ours, theirs, spills, least, least_theirs) in sums.items():
        print(f"{sm}: all of it {flop / ours:.1f} % (nvcc {flop / theirs:.1f} %), the least in tiles {least:.1f} % ({least_theirs:.1f} %); "
              f"ours spill {spilled} bytes, nvcc's {spills}.  ")
    sys.stdout.flush()
    return not spilled


def main(words):
    if not PTXAS or not NVDISASM:
        print("no ptxas or no nvdisasm")
        return 77
    if words[0] == "--products":
        if not NVCC:
            print("no nvcc")
            return 77
        with tempfile.TemporaryDirectory() as folder:
            good = [products(words[1], words[2], words[3].split(","), model, folder) for model in words[4:]]
        return 0 if all(good) else 1
    short = words[0] == "--sums"
    words = words[short:]
    split = words.index("--") if "--" in words else len(words)
    if short:
        print("| model | multiply-adds, % | tiles, us | all, us |\n|---|---:|---:|---:|")
    with tempfile.TemporaryDirectory() as folder:
        good = [table(words[0], words[1].split(","), model, words[split + 1:], folder, short) for model in words[2:split]]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
