#!/usr/bin/env python3
"""Collectives of torch.distributed's gloo between processes of this machine, for
tools/bench/comm_peers: comm_gloo.py RANKS SECONDS BYTES...

Prints lines "OPERATION BYTES SECONDS": the best time of a collective on a buffer of that many bytes
of f32, the slowest rank's, over SECONDS of runs.
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
import torch.multiprocessing

OPERATIONS = ("all-gather", "reduce-scatter", "all-reduce", "all-to-all")


def collective(operation, whole, other):
    part = whole.numel() // dist.get_world_size()
    own = whole[dist.get_rank() * part:][:part]
    if operation == "all-gather":
        dist.all_gather_into_tensor(other, own)
    elif operation == "reduce-scatter":
        dist.reduce_scatter_tensor(other[:part], whole)
    elif operation == "all-reduce":
        dist.all_reduce(whole)
    else:
        dist.all_to_all_single(other, whole)


def timed(operation, whole, other):
    dist.barrier()
    begin = time.perf_counter()
    collective(operation, whole, other)
    seconds = torch.tensor(time.perf_counter() - begin, dtype=torch.float64)
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    return seconds.item()


def measure(operation, size, limit):
    whole, other = torch.ones(size // 4), torch.ones(size // 4)
    best = timed(operation, whole, other)
    for _ in range(min(max(int(limit / best), 5), 1000)):  # alike on all ranks, as the time is
        best = min(best, timed(operation, whole, other))
    return best


def work(rank, ranks, limit, sizes, meeting):
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=ranks)
    for size in sizes:
        for operation in OPERATIONS:
            best = measure(operation, size, limit)
            if rank == 0:
                print(operation, size, f"{best:.9f}", flush=True)
    dist.destroy_process_group()


def main(argv):
    ranks, limit, sizes = int(argv[0]), float(argv[1]), [int(a) for a in argv[2:]]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    with tempfile.TemporaryDirectory() as folder:
        meeting = os.path.join(folder, "meeting")
        torch.multiprocessing.spawn(work, (ranks, limit, sizes, meeting), nprocs=ranks)


if __name__ == "__main__":
    main(sys.argv[1:])
