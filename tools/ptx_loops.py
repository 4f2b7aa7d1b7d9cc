#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""What ptxas makes of the products and convolutions of models: registers, spills, and the share of multiply-adds among the
instructions of the innermost loop that has any.

    tools/ptx_loops.py ASHLAR sm_80[,sm_90,...] MODEL.onnx... [-- OPTIONS]
    tools/ptx_loops.py --nvcc sm_80[,sm_90,...]

Needs ptxas and nvdisasm (of the CUDA toolkit, or the package nvidia-cuda-nvdisasm): from $PTXAS and $NVDISASM, else from
PATH. A table for each model, a row for each kernel whose chunks are blocks of threads and that multiplies; in the end the
share over all of them, each counted by its operations, and how long all steps of the model take: a bound from below by
counting, not a measurement. Of a kernel of tiles: the machine code's loop, as often as it runs, on the multiprocessor with
the most blocks; issuing its instructions, its multiply-adds, or the wait for a k-tile, whichever is longer; and no kernel is
quicker than memory. A kernel more in a line takes GAP. PTX is for the GPU that is named, sm_90's for newer ones. Arguments
behind -- go to ashlar (--var batch=32). Ends with 1 where a kernel is refused or spills, with 77 without the tools.

The second has the same of what nvcc makes of products in these tiles (tools/tile.cu)."""
import collections, os, re, shutil, subprocess, sys, tempfile

PTXAS = os.environ.get("PTXAS") or shutil.which("ptxas")
NVDISASM = os.environ.get("NVDISASM") or shutil.which("nvdisasm")


# multiprocessors, multiply-adds of f32 and of half floats a cycle of one, MHz, bytes of memory a cycle: as in target.c
GPUS = {"sm_80": (108, 64, 1024, 1410, 1103), "sm_90": (132, 128, 1300, 1755, 1909), "sm_120": (170, 128, 256, 2400, 746)}
REGISTERS, WAIT, BEGIN, GAP = 65536, 700, 1000, 1.5  # of one; cycles; cycles; microseconds
SHARED, OWN = {"sm_80": 164 << 10, "sm_90": 228 << 10, "sm_120": 100 << 10}, 1 << 10  # bytes of one; what the system takes of a block's


def run(*command):
    return subprocess.run(command, capture_output=True, text=True)


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
    found = re.search(r"for %\d+ = 0 \.\. (\d+) step (\d) \{\n(?:[^\n{}]*\n){0,4}\s*wait 0", nest)
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


def table(ashlar, sms, model, options, folder):
    good = True
    for sm in sms:
        device = "CUDA:" + sm
        made = run(ashlar, "inspect", "asm", "--no-cache", "--device", device, model, *options)
        plan = run(ashlar, "inspect", "plan", "--device", device, model, *options)
        nests = run(ashlar, "inspect", "nest", "--device", device, model, *options)
        if made.returncode or plan.returncode or nests.returncode:
            print(made.stderr + plan.stderr + nests.stderr)
            return False
        parts = re.split(r"^; kernel (\d+).*\n", made.stdout, flags=re.M)
        kernels = dict(zip(map(int, parts[1::2]), parts[2::2]))
        parts = re.split(r"^# kernel (\d+).*\n", nests.stdout, flags=re.M)
        nests = dict(zip(map(int, parts[1::2]), parts[2::2]))
        steps = collections.defaultdict(list)
        main = plan.stdout[plan.stdout.index("\nsteps\n"):]
        for k, name, chunks, flop, size in re.findall(
                r'kernel k(\d+) "([^"]*)", (\d+) chunks.*?, (\d+) flop, (\d+) bytes', main):
            steps[int(k)].append((name, int(chunks), int(flop), int(size)))
        _, _, _, clock, rate = GPUS[sm]
        print(f"\n{os.path.basename(os.path.dirname(os.path.abspath(model)))} {' '.join(options)}, {sm}\n")
        print("| kernel | steps | Gflop each | blocks | threads | registers | spills | multiply-adds, % | us each |")
        print("|---|---:|---:|---:|---:|---:|---:|---:|---:|")
        adds = instructions = time = tiles = 0
        for k, of in sorted(steps.items()):
            name, chunks, flop, size = of[0]
            least = max(s for _, _, _, s in of) / rate
            threads = int(re.search(r"\.maxntid (\d+)", kernels[k]).group(1))
            found = assemble(kernels[k], sm, folder)
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
            print(f"| {k} {name} | {len(of)} | {flop / 1e9:.3f} | {chunks} | {threads} | {registers} | {spills} | "
                  f"{100 * fma / max(code, 1):.1f} | {each:.1f} |")
        print(f"\nall of it: {100 * adds / max(instructions, 1):.1f} % multiply-adds, tiles {tiles:.0f} us, "
              f"{sum(map(len, steps.values()))} steps {time:.0f} us")
    return good


def nvcc_table(sms, folder):
    """A row for each tile of f32 in src/base/gpu_tile.c."""
    compiler = os.environ.get("NVCC") or shutil.which("nvcc")
    source, cubin = os.path.join(os.path.dirname(os.path.abspath(__file__)), "tile.cu"), os.path.join(folder, "k.cubin")
    if not compiler:
        print("no nvcc")
        return 77
    print("| tile, threads | " + " | ".join(f"{sm}: % | registers" for sm in sms) + " |")
    print("|---|" + 2 * len(sms) * "---:|")
    for rows, vectors, down, across, slices, terms in ((8, 4, 16, 8, 1, 16), (16, 2, 4, 8, 2, 32), (16, 2, 8, 4, 2, 32),
                                                       (16, 2, 4, 4, 4, 32), (8, 2, 8, 4, 2, 32), (16, 2, 4, 2, 8, 64), (16, 2, 2, 4, 8, 64)):
        found = []
        for sm in sms:
            made = run(compiler, "-O3", "-cubin", "-arch=" + sm, "-Xptxas", "-v", f"-DROWS={rows}", f"-DVECTORS={vectors}",
                       f"-DDOWN={down}", f"-DACROSS={across}", f"-DSLICES={slices}", f"-DTERMS={terms}", "-o", cubin, source)
            if made.returncode:
                sys.exit(made.stderr)
            work, size = loop_of(run(NVDISASM, "-c", cubin).stdout)
            found.append(f"{100 * work / size:.1f} | " + re.search(r"Used (\d+) registers", made.stderr)[1])
        print(f"| {rows * down} x {4 * vectors * across}, {down * across * slices} | " + " | ".join(found) + " |", flush=True)
    return 0


def main():
    if not PTXAS or not NVDISASM:
        print("no ptxas or no nvdisasm")
        return 77
    if sys.argv[1] == "--nvcc":
        with tempfile.TemporaryDirectory() as folder:
            return nvcc_table(sys.argv[2].split(","), folder)
    split = sys.argv.index("--") if "--" in sys.argv else len(sys.argv)
    with tempfile.TemporaryDirectory() as folder:
        good = [table(sys.argv[1], sys.argv[2].split(","), model, sys.argv[split + 1:], folder)
                for model in sys.argv[3:split]]
    return 0 if all(good) else 1


if __name__ == "__main__":
    sys.exit(main())
