# SPDX-License-Identifier: MIT
"""What `ashlar plan --explain` says of a model's operations, for the tools beside this file, and of which layer each is. What
programs said is kept in the folder that $EXPLAINED names, where it does, for the next one who asks the same."""
import collections, hashlib, json, os, re, subprocess, sys

# of an operation: its layer is that of the model's node that multiplies, or ""; `registers` and `share` (of multiply-adds
# in the loop) are None where nobody knows or nothing sums, `known` where tools have said them
Operation = collections.namedtuple("Operation", "name layer kernel tile split threads blocks registers spills known share "
                                   "flop bytes bound us")
WIDTHS = (8, 36, 10, 6, 8, 9, 10, 7, 8, 5, 8, 7, 10, 12, 9, 10)


def run(*command, **environment):
    return subprocess.run(command, capture_output=True, text=True, env=dict(os.environ, **environment))


def kept(question, answer):
    """What answer() gives, or has given to this question."""
    folder = os.environ.get("EXPLAINED")
    if not folder:
        return answer()
    path = os.path.join(folder, hashlib.sha256(repr(question).encode()).hexdigest() + ".json")
    if os.path.exists(path):
        with open(path) as f:
            return json.load(f)
    value = answer()
    with open(path + ".new", "w") as f:
        json.dump(value, f)
    os.replace(path + ".new", path)
    return value


def said(*command):
    def ask():
        made = run(*command)
        if made.returncode:
            sys.exit(f"{' '.join(command)}: {made.stdout[-400:]}{made.stderr[-400:]}")
        return made.stdout
    return kept((os.stat(command[0]).st_mtime_ns, *command), ask)


def plan(ashlar, model, sm, options=()):
    return said(ashlar, "plan", model, "--device", "CUDA:" + sm, "--explain", *options)


def amount(text):
    number, _, unit = text.removesuffix("B").strip().partition(" ")
    return float(number) * {"": 1, "k": 1e3, "M": 1e6, "G": 1e9}[unit.strip()]


def layers_of(graph):
    """What each product and convolution of a graph's text is, by its node's name."""
    types, layers = {}, {}
    for line in graph.splitlines():
        value = re.match(r"(%\d+): \w+\[([^]]*)\] = (\w+)\(([^)]*)\)(.*)|(%\d+): \w+\[([^]]*)\]", line)
        if not value:
            continue
        types[value[1] or value[6]] = [d.strip() for d in (value[2] or value[7] or "").split(",")]
        name = re.search(r'@"(.*)"$', line)
        if value[3] not in ("matmul", "conv") or not name:
            continue
        left, right = (types[v.strip()] for v in value[4].split(",")[:2])
        out = types[value[1]]
        if value[3] == "matmul":
            layers[name[1]] = " x ".join(out[:-2] + [out[-2], left[-1], out[-1]])
            continue
        step = re.search(r"strides=\[(\d+)", value[5])[1]
        groups = re.search(r"groups=(\d+)", value[5])[1]
        layers[name[1]] = (f"{' x '.join(right[2:])}, {left[1]} to {out[1]}, {' x '.join(out[2:])}"
                           + (f", step {step}" if step != "1" else "") + (f", {groups} groups" if groups != "1" else ""))
    return layers


def operations(ashlar, model, sm, options=()):
    """(operations, the text with their sums)"""
    layers = layers_of(said(ashlar, "inspect", "graph", "--no-optimize", model, *options))
    kernels = said(ashlar, "inspect", "kernels", model, "--device", "CUDA:" + sm, *options).split("execution\n")[1]
    holds = {int(n): (int(k or -1), re.findall(r"^ {6}(.*)$", nodes, re.M)) for n, k, nodes in re.findall(
        r"^#(\d+) [^\n]*?(?:, kernel (\d+), [^\n]*)?\n((?:      .*\n)*)", kernels, re.M)}
    text = plan(ashlar, model, sm, options)
    rows, _, sums = text[text.index("expected on "):].partition("\n\n")
    found = []
    for line in rows.splitlines()[2:]:
        cells, at = [], 0
        for width in WIDTHS:
            cells.append(line[at:at + width].strip())
            at += width
        number, name, tile, split, threads, blocks, registers, spills, _, _, _, loop, flop, size, bound, us = cells
        kernel, nodes = holds[int(number)]
        multiplies = [] if name.startswith("reduce") else [layers[n] for n in nodes if n in layers]
        found.append(Operation(name, multiplies[0] if multiplies else "", kernel, tile, int(split or 0), int(threads or 0),
                               int(blocks or 0), int(registers.lstrip("~") or 0) or None, int(spills or 0),
                               bool(registers) and registers[0] != "~",
                               float(loop.strip("~%")) if loop else None, amount(flop), amount(size), bound, float(us)))
    return found, sums
