#!/usr/bin/env python3
"""Runs the real zpp-train as several processes: every way in, and what happens when one of them fails.

Usage: zpp_launch_test.py ZPP_TRAIN
"""

import json
import os
import signal
import socket
import stat
import subprocess
import sys
import tempfile
import time
import unittest

ZPP_TRAIN = os.path.abspath(sys.argv[1])
CONFIG = os.path.abspath("configs/gpt-tiny.json")
STEPS = 8
# How a rank that waits for another says what it was doing.
OPERATION = r"(all-gather|reduce-scatter|all-reduce) number \d+"


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def wait_until(what, seconds=30):
    deadline = time.time() + seconds
    while time.time() < deadline:
        found = what()
        if found:
            return found
        time.sleep(0.02)
    raise AssertionError("waited in vain")


class ZppLaunch(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory(prefix="zpp-launch-")
        self.addCleanup(scratch.cleanup)
        self.addCleanup(self.expect_no_process)
        self.dir = scratch.name
        text = "".join(f"The {i * 37 % 101} cats sat on the mat, and " for i in range(2000))
        for name in ("train", "val"):
            with open(f"{self.dir}/{name}.txt", "w") as f:
                f.write(text)

    # --- Help -------------------------------------------------------------------------

    def command(self, *flags, **values):
        """zpp-train on the test's data; keys with __ for the dots."""
        sets = {"run.dir": self.dir + "/run", "train.steps": STEPS, "train.eval_every": 0,
                "schedule.warmup_steps": 0, "sample.tokens": 0, "log.every": 1,
                "launch.timeout_s": 60}
        for name in ("train", "val"):
            sets[f"data.{name}.0.path"] = f"{self.dir}/{name}.txt"
            sets[f"data.{name}.0.format"] = "text"
        sets.update({key.replace("__", "."): value for key, value in values.items()})
        changes = [a for key, value in sets.items() for a in ("--set", f"{key}={value}")]
        return [ZPP_TRAIN, "--config", CONFIG, *changes, *flags]

    def start(self, command, **environment):
        """A process whose output is in its .log; None takes a variable away."""
        variables = {k: v for k, v in {**os.environ, **environment}.items() if v is not None}
        log = open(f"{self.dir}/output-{time.time_ns()}", "w+")
        self.addCleanup(log.close)
        process = subprocess.Popen(command, cwd=self.dir, env=variables, stdin=subprocess.DEVNULL,
                                   stdout=log, stderr=log, start_new_session=True)
        process.log = log
        return process

    def end(self, process, code, seconds=60):
        """What the process has said, once it has ended with that exit status."""
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            self.fail("did not end: " + self.said(process))
        self.assertEqual(process.returncode, code, self.said(process))
        return self.said(process)

    @staticmethod
    def said(process):
        process.log.seek(0)
        return process.log.read()

    def processes(self):
        """{rank: pid} of everything that was started for this test; launchers are 'launcher'."""
        found = {}
        for pid in filter(str.isdigit, os.listdir("/proc")):
            try:
                with open(f"/proc/{pid}/cmdline") as f:
                    if self.dir not in f.read():
                        continue
                with open(f"/proc/{pid}/stat") as f:
                    if f.read().rsplit(")", 1)[1].split()[0] == "Z":
                        continue
                with open(f"/proc/{pid}/environ") as f:
                    variables = dict(v.split("=", 1) for v in f.read().split("\0") if "=" in v)
                rank = variables.get("RANK")
                found[int(rank) if rank else f"launcher {pid}"] = int(pid)
            except (OSError, ValueError):
                pass
        return found

    def expect_no_process(self):
        wait_until(lambda: not self.processes(), 10)

    def losses(self, name="run"):
        try:
            with open(f"{self.dir}/{name}/metrics.jsonl") as f:
                lines = [json.loads(line) for line in f]
        except OSError:
            return []
        return [line["loss"] for line in lines if line["kind"] == "train"]

    def expect_a_good_run(self):
        losses = self.losses()
        self.assertEqual(len(losses), STEPS)
        self.end(self.start(self.command(run__dir=self.dir + "/alone")), 0)
        for a, b in zip(losses, self.losses("alone")):
            self.assertLess(abs(a - b), 2e-5 * b)

    def long_run(self, *flags, **values):
        """A launcher whose ranks have begun to train, and their processes."""
        values = {"train__steps": 1000000, "launch__ranks_per_node": 2, **values}
        job = self.start(self.command(*flags, **values))
        wait_until(lambda: len(self.losses()) > 2 or job.poll() is not None)
        self.assertIsNone(job.poll(), self.said(job))
        return job, self.processes()

    # --- Ways in ----------------------------------------------------------------------

    def test_starts_ranks_itself(self):
        said = self.end(self.start(self.command(launch__ranks_per_node=2)), 0)
        self.assertIn("Everything lies in", said)
        for rank in (0, 1):
            self.assertTrue(os.path.exists(f"{self.dir}/run/log/rank-{rank}.log"))
        self.expect_a_good_run()

    def test_pretends_nodes_and_meets_through_files(self):
        self.end(self.start(self.command(launch__nodes=2, launch__ranks_per_node=2,
                                         launch__rendezvous_dir=self.dir + "/meet")), 0)
        self.expect_a_good_run()

    def test_takes_its_place_among_processes_that_others_started(self):
        port = free_port()
        torchrun = lambda r: {"RANK": str(r), "WORLD_SIZE": "2", "LOCAL_RANK": str(r),
                              "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port)}
        slurm = lambda r: {"SLURM_PROCID": str(r), "SLURM_STEP_ID": "0", "SLURM_LOCALID": str(r),
                           "SLURM_STEP_NUM_TASKS": "2", "SLURM_JOB_ID": str(os.getpid()),
                           "SLURM_STEP_TASKS_PER_NODE": "2", "SLURM_STEP_NODELIST": "localhost"}
        open_mpi = lambda r: {"OMPI_COMM_WORLD_RANK": str(r), "OMPI_COMM_WORLD_SIZE": "2",
                              "OMPI_COMM_WORLD_LOCAL_RANK": str(r),
                              "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
                              "OMPI_MCA_ess_base_jobid": str(os.getpid() + 1)}
        for place in (torchrun, slurm, open_mpi):
            ranks = [self.start(self.command(run__threads=1), **place(r)) for r in (1, 0)]
            for rank in ranks:
                self.end(rank, 0)
            self.assertEqual(len(self.losses()), STEPS)
        self.expect_a_good_run()

    def test_once_per_machine_with_the_first_machine_last(self):
        flags = ["--nnodes", "2", "--master", f"127.0.0.1:{free_port()}", "--node-rank"]
        second = self.start(self.command(*flags, "1"))
        time.sleep(30)
        self.assertIsNone(second.poll(), self.said(second))
        first = self.start(self.command(*flags, "0"))
        self.end(second, 0)
        self.end(first, 0)
        self.expect_a_good_run()

    def fake_ssh(self):
        """Runs the command where we are, in a session of its own, as if it were far away."""
        path = self.dir + "/ssh"
        with open(path, "w") as f:
            f.write('#!/bin/sh\necho "$1" >>"$(dirname "$0")"/hosts\nexec setsid -w sh -c "$2"\n')
        os.chmod(path, os.stat(path).st_mode | stat.S_IXUSR)
        return dict(launch__ssh=json.dumps([path]), launch__hosts='["near", "far"]',
                    launch__master_address="127.0.0.1", launch__ranks_per_node=1)

    def test_starts_hosts_through_ssh(self):
        self.end(self.start(self.command(**self.fake_ssh())), 0)
        with open(self.dir + "/hosts") as f:
            self.assertEqual(sorted(f.read().split()), ["far", "near"])
        self.expect_a_good_run()

    # --- Faults -----------------------------------------------------------------------

    def test_a_rank_that_is_killed_ends_the_job(self):
        job, ranks = self.long_run()
        begin = time.time()
        os.kill(ranks[1], signal.SIGKILL)
        said = self.end(job, 1, 15)
        self.assertLess(time.time() - begin, 10)
        self.assertIn(f"rank 1 (host {socket.gethostname()}, pid {ranks[1]}) was killed by signal 9",
                      said)
        self.assertRegex(said, OPERATION)

    def test_a_rank_that_is_stopped_ends_the_job_at_its_deadline(self):
        job, ranks = self.long_run(launch__timeout_s=2)
        begin = time.time()
        os.kill(ranks[1], signal.SIGSTOP)
        said = self.end(job, 1, 30)
        self.assertLess(time.time() - begin, 2 + 10)
        self.assertRegex(said, r"rank 1 \(host .*, pid " + str(ranks[1]))
        self.assertRegex(said, OPERATION)
        self.assertTrue(os.path.getsize(f"{self.dir}/run/log/flight-0.jsonl") > 0)

    def test_bad_data_on_the_ranks_is_bad_input(self):
        said = self.end(self.start(self.command(launch__ranks_per_node=2,
                                                data__train__0__path="none.txt")), 2)
        self.assertIn("none.txt", said)

    def test_a_job_that_cannot_be_is_refused_before_it_starts(self):
        for values, message in (
                (dict(launch__levels="2x2", launch__ranks_per_node=2), "2x2 is for 4 ranks"),
                (dict(launch__ranks_per_node=3), "train.global_batch")):
            said = self.end(self.start(self.command(**values)), 2)
            self.assertIn(message, said)
            self.assertFalse(os.path.exists(self.dir + "/run"))

    def test_a_port_that_is_taken_is_named(self):
        with socket.socket() as other:
            other.bind(("", 0))
            other.listen()
            port = other.getsockname()[1]
            said = self.end(self.start(self.command(launch__ranks_per_node=2,
                                                    launch__master_port=port)), 1)
            self.assertIn(f"cannot listen on port {port}", said)
            rank = self.start(self.command(), RANK="0", WORLD_SIZE="2", MASTER_ADDR="127.0.0.1",
                              MASTER_PORT=str(port))
            self.assertIn(f"rank 0: store: cannot listen on port {port}", self.end(rank, 1))

    def test_a_process_with_another_token_is_refused(self):
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        command = self.command(launch__timeout_s=2)
        first = self.start(command, RANK="0", ZPP_JOB_TOKEN="right", **place)
        stranger = self.start(command, RANK="1", ZPP_JOB_TOKEN="wrong", **place)
        self.assertRegex(self.end(stranger, 2), "rank 1: store: .*token")
        said = self.end(first, 1)
        self.assertIn("without the job's token", said)
        self.assertRegex(said, r"rank 0: rendezvous: 1 of 2 ranks did not come .*: rank 1;")

    def test_another_configuration_is_refused(self):
        place = {"WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(free_port())}
        first = self.start(self.command(launch__timeout_s=4), RANK="0", **place)
        second = self.start(self.command(launch__timeout_s=4, optimizer__lr=0.5), RANK="1", **place)
        said = self.end(second, 2)
        self.assertIn('rank 1: this rank\'s program or configuration is not rank 0\'s; here: "lr": 0.5',
                      said)
        self.assertRegex(self.end(first, 1), r"rank 0 \(.* waiting for rank 1 \(.* to set 'ucx/0/1'")

    def test_a_killed_launcher_takes_its_ranks_along(self):
        job, ranks = self.long_run()
        self.assertEqual(len(ranks), 3)
        job.kill()
        job.wait()
        self.expect_no_process()

    def test_a_killed_launcher_takes_other_machines_along(self):
        job, processes = self.long_run(**self.fake_ssh())
        self.assertGreaterEqual(len(processes), 5)
        job.kill()
        job.wait()
        self.expect_no_process()

    def test_a_rank_that_is_killed_on_another_machine_ends_the_job(self):
        job, ranks = self.long_run(**self.fake_ssh())
        os.kill(ranks[1], signal.SIGKILL)
        said = self.end(job, 1, 20)
        self.assertIn("host far", said)
        self.assertIn(f"pid {ranks[1]}) was killed by signal 9", said)

    def test_control_c_ends_the_run_cleanly(self):
        for values in ({}, self.fake_ssh()):
            job, _ = self.long_run(**values)
            os.killpg(job.pid, signal.SIGINT)
            self.end(job, 3, 20)
            self.expect_no_process()
            os.rename(self.dir + "/run", self.dir + "/run-" + str(time.time()))

    def test_a_failed_job_is_started_again(self):
        job, ranks = self.long_run(launch__max_restarts=1)
        os.kill(ranks[0], signal.SIGKILL)
        wait_until(lambda: os.path.exists(self.dir + "/run/metrics-1.jsonl") and
                   len(self.losses()) > 2)
        job.terminate()
        said = self.end(job, 3)
        self.assertIn("restart 1 of 1", said)


if __name__ == "__main__":
    unittest.main(argv=[sys.argv[0], *sys.argv[2:]])
