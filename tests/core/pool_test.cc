#include "core/pool.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <vector>

#include "core/cpu_stream.h"

namespace zpp {
namespace {

constexpr int64_t kGranule = MemorySource::kGranule;

using Block = std::shared_ptr<void>;

class PoolTest : public testing::Test {
 protected:
  static CpuStream::Options dry() {
    CpuStream::Options options;
    options.dry = true;
    return options;
  }

  Block take(int64_t bytes) { return pool_.allocate(bytes, home_); }

  Workers workers_{1};
  Pool pool_{Device{}, host_memory()};
  CpuStream home_{workers_, dry()};
  CpuStream other_{workers_, dry()};
};

bool aligned(const Block& block, uintptr_t to) {
  return reinterpret_cast<uintptr_t>(block.get()) % to == 0;
}

TEST_F(PoolTest, GivesAlignedWritableDistinctBlocks) {
  std::vector<Block> blocks;
  for (int64_t bytes : {0, 1, 63, 64, 65, 1000, 5000000}) {
    blocks.push_back(take(bytes));
    EXPECT_TRUE(aligned(blocks.back(), 64)) << bytes;
    std::memset(blocks.back().get(), 0x5a, static_cast<size_t>(bytes));
  }
  for (size_t i = 1; i < blocks.size(); ++i) EXPECT_NE(blocks[i].get(), blocks[i - 1].get());
  EXPECT_EQ(pool_.stats().blocks, 7);
}

TEST_F(PoolTest, CountsLivePeakCachedAndHeld) {
  Block a = take(100);
  Block b = take(64);
  Pool::Stats stats = pool_.stats();
  EXPECT_EQ(stats.live_bytes, 128 + 64);
  EXPECT_EQ(stats.peak_bytes, 128 + 64);
  EXPECT_EQ(stats.held_bytes, kGranule);
  EXPECT_EQ(stats.cached_bytes, kGranule - 128 - 64);
  a.reset();
  stats = pool_.stats();
  EXPECT_EQ(stats.live_bytes, 64);
  EXPECT_EQ(stats.peak_bytes, 128 + 64);
  EXPECT_EQ(stats.blocks, 1);
  pool_.reset_peak();
  EXPECT_EQ(pool_.stats().peak_bytes, 64);
}

TEST_F(PoolTest, ReusesAFreedBlockOfTheSameStreamAtOnce) {
  Block a = take(1000);
  const Block b = take(1000);
  void* const address = a.get();
  a.reset();
  EXPECT_EQ(take(1000).get(), address);
}

TEST_F(PoolTest, DoesNotGiveAStreamsBlocksToAnotherStream) {
  Block a = take(1000);
  void* const address = a.get();
  a.reset();
  const Block foreign = pool_.allocate(1000, other_);
  EXPECT_NE(foreign.get(), address);
  EXPECT_EQ(take(1000).get(), address);
}

TEST_F(PoolTest, TakesTheSmallestBlockThatFits) {
  Block large = take(10000);
  const Block wall1 = take(64);
  Block small = take(2000);
  const Block wall2 = take(64);
  void* const address = small.get();
  large.reset();
  small.reset();
  EXPECT_EQ(take(1500).get(), address);
}

TEST_F(PoolTest, MergesFreedNeighboursInAnyOrder) {
  const std::vector<int> orders[] = {{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {2, 1, 0}, {2, 0, 1}};
  for (const std::vector<int>& order : orders) {
    Block blocks[3] = {take(kGranule), take(kGranule), take(kGranule)};
    const Block wall = take(64);
    void* const address = blocks[0].get();
    for (int i : order) blocks[i].reset();
    EXPECT_EQ(take(3 * kGranule).get(), address);
  }
  EXPECT_EQ(pool_.stats().held_bytes, 4 * kGranule);
}

TEST_F(PoolTest, GrowsByWhatIsMissingBehindTheLastFreeBlock) {
  const Block wall = take(kGranule);
  take(3 * kGranule).reset();
  EXPECT_EQ(pool_.stats().held_bytes, 4 * kGranule);
  const Block b = take(4 * kGranule);
  EXPECT_EQ(pool_.stats().held_bytes, 5 * kGranule);
  std::memset(b.get(), 1, static_cast<size_t>(4 * kGranule));
}

TEST_F(PoolTest, RepeatingTheSameStepNeedsNoMoreMemory) {
  auto step = [&] {
    std::vector<Block> saved;
    for (int layer = 0; layer < 12; ++layer) {
      for (int64_t bytes : {300000, 3000, 900000, 1200000}) saved.push_back(take(bytes));
      take(700000).reset();
    }
    while (!saved.empty()) {
      const Block gradient = take(1500000);
      saved.pop_back();
    }
  };
  step();
  const int64_t held = pool_.stats().held_bytes;
  for (int i = 0; i < 5; ++i) step();
  EXPECT_EQ(pool_.stats().held_bytes, held);
  EXPECT_LE(held, pool_.stats().peak_bytes * 11 / 10);
}

TEST_F(PoolTest, ReportsWhatIsStillAlive) {
  EXPECT_EQ(pool_.leak_report(), "");
  Block a = take(100);
  EXPECT_EQ(pool_.leak_report(), "pool on cpu: 1 block with 128 bytes still alive");
  const Block b = take(1);
  EXPECT_EQ(pool_.leak_report(), "pool on cpu: 2 blocks with 192 bytes still alive");
  a.reset();
  EXPECT_EQ(pool_.leak_report(), "pool on cpu: 1 block with 64 bytes still alive");
}

TEST_F(PoolTest, ABlockMayOutliveThePool) {
  Block survivor;
  {
    Pool pool(Device{}, host_memory());
    survivor = pool.allocate(1000, home_);
  }
  std::memset(survivor.get(), 1, 1000);
}

TEST_F(PoolTest, FreesFromAnyThread) {
  for (int round = 0; round < 50; ++round) {
    std::vector<Block> blocks;
    for (int i = 0; i < 20; ++i) blocks.push_back(take(1000 + 64 * i));
    std::thread freeing([mine = std::vector<Block>(blocks.begin(), blocks.begin() + 10)]() mutable {
      mine.clear();
    });
    blocks.clear();
    for (int i = 0; i < 20; ++i) take(5000);
    freeing.join();
  }
  EXPECT_EQ(pool_.stats().live_bytes, 0);
}

TEST_F(PoolTest, RefusesMoreThanThereIsAndGoesOn) {
  const Block a = take(1000);
  try {
    take(int64_t{1} << 55);
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kOutOfMemory);
    const std::string text = error.what();
    EXPECT_NE(text.find("36028797018963968 bytes asked for by stream compute"), std::string::npos);
    EXPECT_NE(text.find("1024 are live"), std::string::npos) << text;
  }
  EXPECT_THROW(take(-1), Error);
  std::memset(take(1000).get(), 1, 1000);
  EXPECT_EQ(pool_.stats().live_bytes, 1024);
}

TEST_F(PoolTest, LargeBlocksOfAFreshPoolLieOnHugePages) { EXPECT_TRUE(aligned(take(1), kGranule)); }

struct Trace {
  std::vector<Pool::Stats> stats;
  std::vector<intptr_t> offsets;
};

/// The same random calls on any pool, always within [0, 100 MiB].
Trace random_trace(Pool& pool, Stream& home, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<Block> live;
  int64_t bytes_live = 0;
  std::vector<int64_t> sizes;
  Trace trace;
  const Block first = pool.allocate(1, home);
  for (int i = 0; i < 2000; ++i) {
    const bool large = random() % 4 == 0;
    const int64_t bytes = large ? random() % 8000000 : random() % 20000;
    if (bytes_live + bytes > (100 << 20) || (!live.empty() && random() % 5 < 2)) {
      const size_t victim = random() % live.size();
      bytes_live -= sizes[victim];
      live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
      sizes.erase(sizes.begin() + static_cast<ptrdiff_t>(victim));
    } else {
      live.push_back(pool.allocate(bytes, home));
      sizes.push_back(bytes);
      bytes_live += bytes;
      trace.offsets.push_back(reinterpret_cast<intptr_t>(live.back().get()) -
                              reinterpret_cast<intptr_t>(first.get()));
    }
    trace.stats.push_back(pool.stats());
  }
  return trace;
}

TEST_F(PoolTest, CountedMemoryMakesTheSameDecisionsAsRealMemory) {
  for (uint32_t seed : {1u, 2u, 3u}) {
    Pool real(Device{}, host_memory());
    Pool dry(Device{}, counted_memory());
    const Trace a = random_trace(real, home_, seed);
    const Trace b = random_trace(dry, home_, seed);
    EXPECT_EQ(a.offsets, b.offsets);
    ASSERT_EQ(a.stats.size(), b.stats.size());
    for (size_t i = 0; i < a.stats.size(); ++i) {
      ASSERT_EQ(a.stats[i].held_bytes, b.stats[i].held_bytes);
      ASSERT_EQ(a.stats[i].peak_bytes, b.stats[i].peak_bytes);
    }
  }
}

TEST_F(PoolTest, NeverHandsOutOverlappingBlocks) {
  std::mt19937 random(11);
  struct Live {
    Block block;
    size_t bytes;
    unsigned char mark;
  };
  std::vector<Live> live;
  for (int i = 0; i < 3000; ++i) {
    if (live.size() > 40 || (!live.empty() && random() % 2 == 0)) {
      const size_t victim = random() % live.size();
      const Live& v = live[victim];
      const auto* data = static_cast<const unsigned char*>(v.block.get());
      ASSERT_TRUE(std::all_of(data, data + v.bytes, [&](unsigned char c) { return c == v.mark; }));
      live.erase(live.begin() + static_cast<ptrdiff_t>(victim));
    } else {
      const size_t bytes = random() % 3000;
      const auto mark = static_cast<unsigned char>(random());
      live.push_back({take(static_cast<int64_t>(bytes)), bytes, mark});
      std::memset(live.back().block.get(), mark, bytes);
    }
  }
}

TEST_F(PoolTest, CountedMemoryHoldsMoreThanTheMachineHas) {
  Pool dry(Device{}, counted_memory());
  const Block huge = dry.allocate(int64_t{1} << 44, home_);
  EXPECT_EQ(dry.stats().live_bytes, int64_t{1} << 44);
  EXPECT_NE(huge.get(), nullptr);
}

}  // namespace
}  // namespace zpp
