#include "core/available_cores.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <fstream>
#include <string>

namespace zpp {
namespace {

namespace fs = std::filesystem;

/// A made-up control group tree.
class Quota : public testing::Test {
 protected:
  Quota() : dir_(fs::path(testing::TempDir()) / ("zpp_quota_" + std::to_string(getpid()))) {
    fs::create_directories(dir_);
  }
  ~Quota() override { fs::remove_all(dir_); }

  void write(const std::string& file, const std::string& text) {
    fs::create_directories((dir_ / file).parent_path());
    std::ofstream(dir_ / file) << text;
  }
  int cores() const { return cores_by_quota(dir_ / "self", dir_ / "cgroup"); }

  fs::path dir_;
};

TEST_F(Quota, OfVersionTwoIsTheSmallestOnTheWayUp) {
  write("self", "0::/slice/job\n");
  write("cgroup/slice/job/cpu.max", "max 100000\n");
  EXPECT_EQ(cores(), 0);
  write("cgroup/slice/cpu.max", "350000 100000\n");
  EXPECT_EQ(cores(), 3);
  write("cgroup/slice/job/cpu.max", "200000 100000\n");
  EXPECT_EQ(cores(), 2);
}

TEST_F(Quota, OfVersionOneIsReadFromTheCpuHierarchy) {
  write("self", "5:cpuset:/job\n4:cpu,cpuacct:/job\n1:name=systemd:/\n");
  write("cgroup/cpuset/job/cpu.cfs_quota_us", "100000\n");
  write("cgroup/cpu,cpuacct/job/cpu.cfs_period_us", "50000\n");
  write("cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "-1\n");
  EXPECT_EQ(cores(), 0);
  write("cgroup/cpu,cpuacct/job/cpu.cfs_quota_us", "200000\n");
  EXPECT_EQ(cores(), 4);
}

TEST_F(Quota, OfLessThanACoreIsOneCore) {
  write("self", "0::/\n");
  write("cgroup/cpu.max", "50000 100000\n");
  EXPECT_EQ(cores(), 1);
}

TEST_F(Quota, OfAGroupThatIsNotMountedIsThatOfTheRoot) {
  write("self", "0::/outside/the/container\n");
  write("cgroup/cpu.max", "200000 100000\n");
  EXPECT_EQ(cores(), 2);
}

TEST_F(Quota, IsNoneWhereThereAreNoGroups) { EXPECT_EQ(cores(), 0); }

TEST(AvailableCores, IsAtLeastOne) { EXPECT_GE(available_cores(), 1); }

}  // namespace
}  // namespace zpp
