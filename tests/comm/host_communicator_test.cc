#include "comm/host_communicator.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/rng.h"
#include "tests/comm/local_ranks.h"

namespace zpp {
namespace {

const std::vector<std::vector<int>> kTopologies = {
    {1}, {2}, {3}, {4}, {6}, {8}, {1, 4}, {2, 4}, {2, 6}, {3, 6}, {4, 8}, {2, 4, 8}};
const std::vector<std::string> kAlgorithms = {"direct", "ring", "two-level", "tree"};
// None, fewer than ranks, odd.
const std::vector<int64_t> kSizes = {0, 1, 5, 197};

/// Element i of rank r: small integers, so that sums are exact in every dtype.
double element(int rank, int64_t i) {
  return static_cast<double>((i * 7 + i / 9 + rank * (i % 5 + 13)) % 9 - 4);
}

template <class T>
T from_double(double x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(static_cast<float>(x));
  } else {
    return static_cast<T>(x);
  }
}
template <class T>
double as_double(T x) {
  if constexpr (std::is_same_v<T, bf16>) {
    return static_cast<double>(to_f32(x));
  } else {
    return static_cast<double>(x);
  }
}

template <class T>
View view_of(std::vector<T>& v) {
  return make_view(v.data(), {static_cast<int64_t>(v.size())}, DTypeOf<T>::value);
}

template <class T>
std::vector<T> elements(int rank, int64_t count) {
  std::vector<T> v(static_cast<size_t>(count));
  for (int64_t i = 0; i < count; ++i) v[static_cast<size_t>(i)] = from_double<T>(element(rank, i));
  return v;
}

double reduced(ReduceOp op, int ranks, int64_t i) {
  double result = op == ReduceOp::kMax ? -INFINITY : 0;
  for (int r = 0; r < ranks; ++r) {
    result = op == ReduceOp::kMax ? std::max(result, element(r, i)) : result + element(r, i);
  }
  return op == ReduceOp::kAvg ? result / ranks : result;
}

template <class T>
void expect_reduced(const std::vector<T>& out, ReduceOp op, int ranks, int64_t first) {
  // Means are rounded once.
  const double relative = std::is_same_v<T, bf16> ? 1.0 / 256 : 1e-6;
  for (size_t i = 0; i < out.size(); ++i) {
    const double want = reduced(op, ranks, first + static_cast<int64_t>(i));
    ASSERT_NEAR(as_double(out[i]), want, std::abs(want) * relative) << "element " << i;
  }
}

template <class T>
void check_gather(LocalRank& r, int64_t n) {
  std::vector<T> in = elements<T>(r.rank, n);
  std::vector<T> out(static_cast<size_t>(n * r.world.size()));
  r.world.all_gather(view_of(in), view_of(out)).synchronize();
  std::vector<T> again(out.size());
  std::copy(in.begin(), in.end(), again.begin() + r.rank * n);
  const View place = view_of(again).slice(0, r.rank * n, (r.rank + 1) * n);
  r.world.all_gather(place, view_of(again)).synchronize();
  for (int peer = 0; peer < r.world.size(); ++peer) {
    for (int64_t i = 0; i < n; ++i) {
      const auto at = static_cast<size_t>(peer * n + i);
      ASSERT_EQ(as_double(out[at]), element(peer, i));
      ASSERT_EQ(as_double(again[at]), element(peer, i));
    }
  }
}

template <class T, class Out = T>
void check_reduce_scatter(LocalRank& r, int64_t n, ReduceOp op) {
  std::vector<T> in = elements<T>(r.rank, n * r.world.size());
  std::vector<Out> out(static_cast<size_t>(n));
  r.world.reduce_scatter(view_of(in), view_of(out), op).synchronize();
  expect_reduced(out, op, r.world.size(), r.rank * n);
  if constexpr (std::is_same_v<T, Out>) {
    std::vector<T> whole = elements<T>(r.rank, n * r.world.size());
    const View place = view_of(whole).slice(0, r.rank * n, (r.rank + 1) * n);
    r.world.reduce_scatter(view_of(whole), place, op).synchronize();
    const auto begin = whole.begin() + r.rank * n;
    expect_reduced(std::vector<T>(begin, begin + n), op, r.world.size(), r.rank * n);
  }
}

template <class T>
void check_all_reduce(LocalRank& r, int64_t n, ReduceOp op) {
  std::vector<T> inout = elements<T>(r.rank, n);
  r.world.all_reduce(view_of(inout), op).synchronize();
  expect_reduced(inout, op, r.world.size(), 0);
}

template <class T>
void check_broadcast(LocalRank& r, int64_t n) {
  for (int root = 0; root < r.world.size(); ++root) {
    std::vector<T> inout = elements<T>(r.rank, n);
    r.world.broadcast(view_of(inout), root).synchronize();
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(as_double(inout[static_cast<size_t>(i)]), element(root, i));
    }
  }
}

template <class T>
void check_all_to_all(LocalRank& r, int64_t n) {
  std::vector<T> in = elements<T>(r.rank, n * r.world.size());
  std::vector<T> out(in.size());
  r.world.all_to_all(view_of(in), view_of(out)).synchronize();
  for (int peer = 0; peer < r.world.size(); ++peer) {
    for (int64_t i = 0; i < n; ++i) {
      ASSERT_EQ(as_double(out[static_cast<size_t>(peer * n + i)]), element(peer, r.rank * n + i));
    }
  }
}

template <class T>
void check_float_dtype(LocalRank& r, int64_t n) {
  check_gather<T>(r, n);
  for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
    check_reduce_scatter<T>(r, n, op);
    check_all_reduce<T>(r, n, op);
  }
  check_broadcast<T>(r, n);
  check_all_to_all<T>(r, n);
}

std::string label(const ::testing::TestParamInfo<std::vector<int>>& info) {
  std::string text = "of";
  for (int size : info.param) text += fmt::format("_{}", size);
  return text;
}

class Collectives : public ::testing::TestWithParam<std::vector<int>> {
 protected:
  void check_all(const std::function<void(LocalRank&, int64_t)>& fn) {
    for (const std::string& algorithm : kAlgorithms) {
      SCOPED_TRACE(algorithm);
      LocalRanksOptions options;
      options.links.force = algorithm;
      run_ranks(topology_of(GetParam()), options, [&](LocalRank& r) {
        for (int64_t n : kSizes) fn(r, n);
      });
    }
  }
};

TEST_P(Collectives, MatchASerialReferenceInF32) { check_all(check_float_dtype<float>); }
TEST_P(Collectives, MatchASerialReferenceInBf16) {
  check_all([](LocalRank& r, int64_t n) {
    check_float_dtype<bf16>(r, n);
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kAvg, ReduceOp::kMax}) {
      check_reduce_scatter<bf16, float>(r, n, op);
    }
  });
}
TEST_P(Collectives, MatchASerialReferenceInF64) { check_all(check_float_dtype<double>); }
TEST_P(Collectives, MatchASerialReferenceInIntegers) {
  check_all([](LocalRank& r, int64_t n) {
    for (ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax}) {
      check_all_reduce<int32_t>(r, n, op);
      check_all_reduce<int64_t>(r, n, op);
    }
    check_gather<int8_t>(r, n);
    check_all_to_all<int64_t>(r, n);
  });
}

class LongBuffers : public ::testing::TestWithParam<std::vector<int>> {};

TEST_P(LongBuffers, AreCutIntoChunksThatArriveInPlace) {
  constexpr int64_t kBlock = 300001;  // more than two chunks
  for (const std::string& algorithm : kAlgorithms) {
    SCOPED_TRACE(algorithm);
    LocalRanksOptions options;
    options.links.force = algorithm;
    run_ranks(topology_of(GetParam()), options, [&](LocalRank& r) {
      check_gather<float>(r, kBlock);
      check_reduce_scatter<bf16, float>(r, kBlock, ReduceOp::kSum);
      check_all_reduce<float>(r, kBlock * r.world.size() - 3, ReduceOp::kAvg);
      check_all_to_all<bf16>(r, kBlock);
    });
  }
}

INSTANTIATE_TEST_SUITE_P(Topologies, LongBuffers,
                         ::testing::ValuesIn(std::vector<std::vector<int>>{{3}, {2, 4}}), label);

std::vector<float> noise(int rank, int64_t count) {
  const RngKey key{7, static_cast<uint64_t>(rank), 0};
  std::vector<float> v(static_cast<size_t>(count));
  for (size_t i = 0; i < v.size(); ++i) v[i] = normal_at(key, i);
  return v;
}

/// Sums and gathers of numbers that do not add up exactly, by rank.
std::vector<std::vector<float>> results_of(const std::vector<int>& sizes,
                                           const LocalRanksOptions& options) {
  std::vector<std::vector<float>> results(static_cast<size_t>(sizes.back()));
  run_ranks(topology_of(sizes), options, [&](LocalRank& r) {
    std::vector<float> sum = noise(r.rank, 1001);
    std::vector<float> in = noise(r.rank + 100, 40 * r.world.size());
    std::vector<float> part(40), all(in.size());
    const Communicator::Work first = r.world.all_reduce(view_of(sum), ReduceOp::kAvg);
    const Communicator::Work other = r.mesh.weights.world().reduce_scatter(
        view_of(in), view_of(part), ReduceOp::kSum, {first.done()});
    r.world.all_gather(view_of(part), view_of(all), {other.done()}).synchronize();
    std::vector<float>& mine = results[static_cast<size_t>(r.rank)];
    mine = sum;
    mine.insert(mine.end(), all.begin(), all.end());
  });
  return results;
}

TEST(Determinism, JitterChangesNoBitAndAllRanksHaveTheSame) {
  for (const std::vector<int>& sizes : {std::vector<int>{3}, {2, 6}}) {
    for (const std::string& algorithm : kAlgorithms) {
      SCOPED_TRACE(algorithm);
      LocalRanksOptions options;
      options.links.force = algorithm;
      const auto calm = results_of(sizes, options);
      for (const auto& result : calm) EXPECT_EQ(result, calm[0]);
      options.stream_jitter_us = 300;
      options.network.jitter_us = 300;
      for (uint64_t seed : {1, 2}) {
        options.network.jitter_seed = seed;
        EXPECT_EQ(results_of(sizes, options), calm);
      }
    }
  }
}

TEST(Bf16, ADirectSumIsRoundedOnce) {
  // 1 + 2^-8 is a tie that goes to 1: rounded after each addition, the small parts would be lost.
  run_ranks(topology_of({3}), {}, [](LocalRank& r) {
    std::vector<bf16> in(3, to_bf16(r.rank == 0 ? 1.0f : 0.00390625f));
    std::vector<bf16> out(1);
    std::vector<float> wide(1);
    std::vector<bf16> again = in;
    r.world.reduce_scatter(view_of(in), view_of(out), ReduceOp::kSum).synchronize();
    r.world.reduce_scatter(view_of(again), view_of(wide), ReduceOp::kSum).synchronize();
    EXPECT_EQ(to_f32(out[0]), 1.0078125f);
    EXPECT_EQ(wide[0], 1.0078125f);
  });
}

INSTANTIATE_TEST_SUITE_P(Topologies, Collectives, ::testing::ValuesIn(kTopologies), label);

}  // namespace
}  // namespace zpp
