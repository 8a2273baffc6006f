// The launcher, with shell scripts that play the ranks.
#include "tools/launch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <sstream>
#include <thread>

#include "comm/store.h"
#include "core/error.h"
#include "core/files.h"
#include "tools/job_store.h"
#include "tools/launch_process.h"

namespace zpp {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::Not;

class Launch : public testing::Test {
 protected:
  void SetUp() override {
    const auto* info = testing::UnitTest::GetInstance()->current_test_info();
    dir_ = fs::path(testing::TempDir()) / info->test_suite_name() / info->name();
    fs::remove_all(dir_);
    fs::create_directories(dir_);
  }

  /// A request whose ranks run `script`, in which $dir is a directory of the test.
  LaunchRequest request(const std::string& script, int ranks) const {
    LaunchRequest r;
    r.config.ranks_per_node = ranks;
    r.config.timeout_s = 5;
    r.program = "/bin/sh";
    r.arguments = {"sh", "-c", "dir=" + dir_.string() + "\n" + script};
    r.settle = std::chrono::milliseconds(100);
    r.grace = std::chrono::milliseconds(300);
    return r;
  }

  ExitCode run(const LaunchRequest& r) {
    const auto begin = std::chrono::steady_clock::now();
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const std::unique_ptr<Log> log = make_log();
    const ExitCode code = launch(r, *log);
    errors_ = testing::internal::GetCapturedStderr();
    output_ = testing::internal::GetCapturedStdout();
    seconds_ = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
    return code;
  }

  std::string file(const std::string& name) const { return read_file(dir_ / name); }

  fs::path dir_;
  std::string output_, errors_;
  double seconds_ = 0;
};

TEST_F(Launch, TellsEachRankItsPlace) {
  const auto r = request(
      "echo $RANK $WORLD_SIZE $LOCAL_RANK $LOCAL_WORLD_SIZE $MASTER_ADDR "
      "$ZPP_THREADS ${#ZPP_JOB_TOKEN} >$dir/$RANK; [ $MASTER_PORT -gt 0 ]",
      3);
  EXPECT_EQ(run(r), kExitDone) << errors_;
  EXPECT_THAT(file("0"), testing::StartsWith("0 3 0 3 127.0.0.1 "));
  EXPECT_THAT(file("2"), testing::StartsWith("2 3 2 3 127.0.0.1 "));
  EXPECT_THAT(file("2"), testing::EndsWith(" 32\n"));
}

TEST_F(Launch, RanksReachTheStoreWithTheTokenAndStrangersAreLogged) {
  // The store's address is all that a stranger can find out.
  const auto r = request(
      "echo $MASTER_PORT >$dir/tmp; echo $ZPP_JOB_TOKEN >>$dir/tmp; "
      "mv $dir/tmp $dir/port; while [ ! -e $dir/done ]; do sleep 0.02; done",
      1);
  std::string refused, value;
  std::thread stranger([&] {
    // Signals are the launcher's.
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_BLOCK, &all, nullptr);
    while (!fs::exists(dir_ / "port")) std::this_thread::sleep_for(std::chrono::milliseconds(5));
    std::istringstream text(file("port"));
    int port = 0;
    std::string token;
    text >> port >> token;
    try {
      connect_store({.address = "127.0.0.1", .port = port, .token = "guessed"}, Millis(2000));
    } catch (const Error& error) {
      refused = error.what();
    }
    const auto store =
        connect_store({.address = "127.0.0.1", .port = port, .token = token}, Millis(2000));
    store->set("a", "b");
    value = store->get("a", Millis(1000));
    std::ofstream(dir_ / "done");
  });
  EXPECT_EQ(run(r), kExitDone) << errors_;
  stranger.join();
  EXPECT_NE(refused, "");
  EXPECT_EQ(value, "b");
  EXPECT_THAT(errors_, HasSubstr("warning rendezvous: "));
}

TEST_F(Launch, PassesOnWhatRankZeroSaysAndNamesTheOthers) {
  EXPECT_EQ(run(request("echo out $RANK; echo err $RANK >&2", 2)), kExitDone);
  EXPECT_EQ(output_, "out 0\n");
  EXPECT_THAT(errors_, HasSubstr("err 0\n"));
  EXPECT_THAT(errors_, HasSubstr("[rank 1] err 1\n"));
}

TEST_F(Launch, DividesTheCores) {
  const auto cores = affinity_cores();
  const auto r = request("grep Cpus_allowed_list /proc/self/status | cut -f2 >$dir/$RANK",
                         static_cast<int>(cores.size()));
  EXPECT_EQ(run(r), kExitDone);
  for (size_t rank = 0; rank < cores.size(); ++rank) {
    EXPECT_EQ(file(std::to_string(rank)), std::to_string(cores[rank]) + "\n");
  }
}

TEST_F(Launch, AFailureEndsTheOthersAndNamesRankHostStatusAndLastWords) {
  const auto r = request("if [ $RANK = 1 ]; then echo oh dear >&2; exit 7; fi; sleep 100", 3);
  EXPECT_EQ(run(r), kExitFailed);
  char host[256] = {};
  ::gethostname(host, sizeof(host) - 1);
  EXPECT_THAT(errors_, HasSubstr(std::string("rank 1 (host ") + host + ", pid "));
  EXPECT_THAT(errors_, HasSubstr("ended with exit status 7; its last words:\n  oh dear"));
  EXPECT_LT(seconds_, 2);
}

TEST_F(Launch, ARankThatIsKilledIsNamedWithTheSignalAndTheEndOfItsLog) {
  auto r = request("[ $RANK = 0 ] && echo step 7 >$dir/rank-0.log && kill -9 $$; sleep 100", 2);
  r.log_dir = dir_.string();
  EXPECT_EQ(run(r), kExitFailed);
  EXPECT_THAT(errors_, HasSubstr("rank 0"));
  EXPECT_THAT(errors_, HasSubstr("was killed by signal 9 (SIGKILL); its last words:\n  step 7"));
}

TEST_F(Launch, RanksThatDoNotListenAreKilledAndSoIsWhatTheyStarted) {
  const auto r = request(
      "[ $RANK = 1 ] && sleep 0.1 && exit 1; trap '' TERM; "
      "sleep 1000 & echo $! >$dir/child; kill -STOP $$",
      2);
  EXPECT_EQ(run(r), kExitFailed);
  EXPECT_LT(seconds_, 3);
  const std::string child = file("child");
  const auto gone = [&] {
    return !fs::exists("/proc/" + child.substr(0, child.find('\n')) + "/exe");
  };
  for (int i = 0; i < 100 && !gone(); ++i) ::usleep(10000);
  EXPECT_TRUE(gone());
}

TEST_F(Launch, BlamesTheRankThatFailedAndNotTheOneThatOnlyNoticed) {
  const auto r = request("[ $RANK = 0 ] && exit 4; sleep 0.05; echo the cause >&2; exit 1", 2);
  EXPECT_EQ(run(r), kExitFailed);
  EXPECT_THAT(errors_, HasSubstr("error rank 1"));
  EXPECT_THAT(errors_, HasSubstr("ended with exit status 1; its last words:\n  the cause"));
}

TEST_F(Launch, BadInputStaysBadInputAndIsNotTriedAgain) {
  auto r = request("echo x >>$dir/starts; exit 2", 1);
  r.config.max_restarts = 3;
  EXPECT_EQ(run(r), kExitBadInput);
  EXPECT_EQ(file("starts"), "x\n");
}

TEST_F(Launch, ARunThatWasStoppedSaysSo) {
  EXPECT_EQ(run(request("exit 3", 2)), kExitStopped);
  EXPECT_THAT(errors_, Not(HasSubstr("error")));
}

TEST_F(Launch, SignalsReachEveryRankAndMayEndTheRun) {
  for (const std::string signal : {"TERM", "INT", "USR1"}) {
    auto r = request("trap 'echo got it >$dir/$RANK; exit 3' " + signal + "\n" +
                         "echo >$dir/ready-$RANK\n"
                         "if [ $RANK = 0 ]; then\n"
                         "  until [ -e $dir/ready-1 ]; do sleep 0.01; done\n"
                         "  kill -" +
                         signal +
                         " $PPID\n"
                         "fi\n"
                         "while true; do sleep 0.02; done",
                     2);
    r.config.max_restarts = 1;
    EXPECT_EQ(run(r), kExitStopped) << errors_;
    EXPECT_EQ(file("0"), "got it\n");
    EXPECT_EQ(file("1"), "got it\n");
    for (const char* name : {"0", "1", "ready-0", "ready-1"}) fs::remove(dir_ / name);
  }
}

TEST_F(Launch, ASecondSignalEndsWhatDoesNotWantToEnd) {
  const auto r =
      request("trap '' TERM INT; kill -INT $PPID; sleep 1.1; kill -INT $PPID; sleep 100", 1);
  EXPECT_EQ(run(r), kExitFailed);
  EXPECT_THAT(errors_, HasSubstr("ended by a second SIGINT"));
  EXPECT_LT(seconds_, 4);
}

TEST_F(Launch, AFailedJobIsStartedAgainWithAFreshToken) {
  auto r = request("echo $ZPP_ATTEMPT $ZPP_JOB_TOKEN >>$dir/starts; [ $ZPP_ATTEMPT = 1 ]", 1);
  r.config.max_restarts = 2;
  EXPECT_EQ(run(r), kExitDone) << errors_;
  std::istringstream starts(file("starts"));
  std::string first, first_token, second, second_token, more;
  starts >> first >> first_token >> second >> second_token;
  EXPECT_EQ(first, "0");
  EXPECT_EQ(second, "1");
  EXPECT_NE(first_token, second_token);
  EXPECT_FALSE(starts >> more);
  EXPECT_THAT(errors_, HasSubstr("starting the job again from its beginning, restart 1 of 2"));
}

TEST_F(Launch, AJobThatAlwaysFailsEndsAfterItsRestarts) {
  auto r = request("echo x >>$dir/starts; exit 1", 1);
  r.config.max_restarts = 2;
  EXPECT_EQ(run(r), kExitFailed);
  EXPECT_EQ(file("starts"), "x\nx\nx\n");
}

TEST_F(Launch, AnOccupiedPortIsNamed) {
  const TcpStoreServer other(0, "somebody else's");
  auto r = request("true", 1);
  r.config.master_port = other.port();
  try {
    run(r);
    FAIL();
  } catch (const Error& error) {
    testing::internal::GetCapturedStderr();
    testing::internal::GetCapturedStdout();
    EXPECT_EQ(error.code(), Code::kIo);
    EXPECT_THAT(error.what(), HasSubstr(std::to_string(other.port())));
  }
}

TEST_F(Launch, AProgramThatCannotBeStartedIsNamed) {
  auto r = request("true", 1);
  r.program = "/nowhere/at/all";
  try {
    run(r);
    FAIL();
  } catch (const Error& error) {
    testing::internal::GetCapturedStderr();
    testing::internal::GetCapturedStdout();
    EXPECT_THAT(error.what(), HasSubstr("rank 0 cannot be started: /nowhere/at/all: No such file"));
  }
}

/// Two launchers of one job, as on two machines, which meet at `master_port`.
class TwoLaunchers : public Launch {
 protected:
  void run_both(LaunchRequest r, int seconds_between = 0) {
    int port = 0;
    {
      const TcpStoreServer free_one(0, "x");
      port = free_one.port();
    }
    r.nodes = 2;
    r.master_address = "127.0.0.1";
    r.master_port = port;
    r.token = "given";
    std::thread launchers[2];
    for (const int node : {1, 0}) {
      launchers[node] = std::thread([this, r, node]() mutable {
        r.node = node;
        const std::unique_ptr<Log> log = make_log(dir_ / ("launcher-" + std::to_string(node)));
        codes_[node] = launch(r, *log);
      });
      if (seconds_between > 0 && node == 1) ::sleep(static_cast<unsigned>(seconds_between));
    }
    for (std::thread& launcher : launchers) launcher.join();
  }
  std::string log(int node) const { return file("launcher-" + std::to_string(node)); }

  ExitCode codes_[2] = {};
};

TEST_F(TwoLaunchers, CountTheRanksOfBothMachines) {
  run_both(request("echo $WORLD_SIZE $LOCAL_RANK >$dir/$RANK", 2));
  EXPECT_EQ(codes_[0], kExitDone);
  EXPECT_EQ(codes_[1], kExitDone);
  EXPECT_EQ(file("3"), "4 1\n");
}

TEST_F(TwoLaunchers, AFailureOnOneMachineEndsTheOther) {
  run_both(request("[ $RANK = 1 ] && sleep 0.2 && exit 9; sleep 100", 1));
  EXPECT_EQ(codes_[1], kExitFailed);
  EXPECT_EQ(codes_[0], kExitFailed);
  EXPECT_THAT(log(1), HasSubstr("rank 1"));
  EXPECT_THAT(log(0), HasSubstr("rank 1"));
  EXPECT_THAT(log(0), HasSubstr("ended with exit status 9"));
}

TEST_F(TwoLaunchers, StartAgainTogetherEvenIfOneOfThemWasDone) {
  auto r = request(
      "echo $RANK $ZPP_ATTEMPT >>$dir/starts; "
      "[ $RANK$ZPP_ATTEMPT = 10 ] && sleep 0.3 && exit 1; exit 0",
      1);
  r.config.max_restarts = 1;
  run_both(r);
  EXPECT_EQ(codes_[0], kExitDone);
  EXPECT_EQ(codes_[1], kExitDone);
  for (const char* start : {"0 0\n", "1 0\n", "0 1\n", "1 1\n"}) {
    EXPECT_THAT(file("starts"), HasSubstr(start));
  }
}

TEST_F(TwoLaunchers, MayStartSecondsApart) {
  run_both(request("true", 1), 2);
  EXPECT_EQ(codes_[0], kExitDone);
  EXPECT_EQ(codes_[1], kExitDone);
}

TEST(LaunchControl, ReadsTokenAndAttemptAndNoMore) {
  int fds[2];
  ASSERT_EQ(::pipe(fds), 0);
  const std::string text = "abc 4\nsignal 15\n";
  ASSERT_EQ(::write(fds[1], text.data(), text.size()), static_cast<ssize_t>(text.size()));
  ::close(fds[1]);
  const ControlLine line = read_control_line(fds[0]);
  EXPECT_EQ(line.token, "abc");
  EXPECT_EQ(line.attempt, 4);
  char rest[64];
  EXPECT_EQ(::read(fds[0], rest, sizeof(rest)), 10);
  EXPECT_THROW(read_control_line(fds[0]), Error);
  ::close(fds[0]);
}

TEST(LaunchControl, QuotesForAShell) {
  EXPECT_EQ(shell_quote("a b"), "'a b'");
  EXPECT_EQ(shell_quote("it's"), "'it'\\''s'");
}

}  // namespace
}  // namespace zpp
