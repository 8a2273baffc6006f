// Coded messages: gathers of packets, and sums that are coded anew at each level.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <vector>

#include "comm/packet.h"
#include "tests/comm/local_ranks.h"

namespace zpp {
namespace {

constexpr int64_t kGrid = 1024;

struct Reduction {
  WireFormat intra, inter;
  Segments segments;
  int64_t n = 0;  // of a rank's part
  DType as_is = DType::kF32;
  bool hadamard = false;
  bool stochastic = false;
  int64_t chunks = 1;
  float scale = 1;
  int64_t jitter_us = 0;
  int64_t grid = kGrid;
};

/// What all ranks' parts are in the end, when rank r has `values(r)`.
std::vector<float> reduce(const Topology& topology, const Reduction& how,
                          const std::function<std::vector<float>(int)>& values) {
  std::vector<float> all(static_cast<size_t>(how.n * topology.world()));
  LocalRanksOptions options;
  options.stream_jitter_us = how.jitter_us;
  run_ranks(topology, options, [&](LocalRank& r) {
    std::vector<float> in = values(r.rank);
    const View view = make_view(in.data(), {static_cast<int64_t>(in.size())}, DType::kF32);
    const View out = make_view(all.data() + r.rank * how.n, {how.n}, DType::kF32);
    CodedReduction coded{.segments = std::make_shared<Segments>(how.segments),
                         .first = 0,
                         .intra = how.intra,
                         .inter = how.inter,
                         .as_is = how.as_is,
                         .hadamard = how.hadamard,
                         .rounding = nullptr,
                         .chunks = how.chunks,
                         .grid = how.grid,
                         .scale = how.scale};
    if (how.stochastic) coded.rounding = std::make_shared<RngKey>(RngKey{5, 6, 0});
    r.world.coded_reduce_scatter(view, out, coded).synchronize();
  });
  return all;
}

const std::vector<std::vector<int>> kLayouts = {{1},    {2},    {3},    {4},    {5},
                                                {6},    {7},    {8},    {1, 2}, {2, 4},
                                                {2, 6}, {3, 6}, {4, 8}, {2, 8}, {2, 4, 8}};
const std::vector<WireFormat> kFormats = {{}, {8, 512}, {4, 128}};

/// Matrices and vectors of awkward sizes, each from a multiple of the grid on.
Segments awkward(int world, int64_t grid) {
  Segments segments;
  int64_t begin = 0;
  for (const int64_t n : std::vector<int64_t>{0, 1, world - 1, world, world + 1, 127, 4097}) {
    for (const bool coded : {true, false}) {
      if (n == 0) continue;
      segments.push_back({begin, n, coded});
      begin += (n + grid - 1) / grid * grid;
    }
  }
  return segments;
}

TEST(CodedReduce, EveryPathGivesExactlyTheMeanOfConstants) {
  constexpr int64_t kSmallGrid = 128;
  for (const auto& layout : kLayouts) {
    const Topology topology = topology_of(layout);
    const int world = topology.world();
    const Segments segments = awkward(world, kSmallGrid);
    const int64_t flat = segments.back().begin + segments.back().n;
    const int64_t padding = kSmallGrid * world;
    for (const WireFormat& intra : std::vector<WireFormat>{{}, {8, 128}, {4, 32}}) {
      for (const WireFormat& inter : std::vector<WireFormat>{{}, {8, 64}, {4, 128}}) {
        const Reduction how{.intra = intra,
                            .inter = inter,
                            .segments = segments,
                            .n = (flat + padding - 1) / padding * kSmallGrid,
                            .chunks = 2,
                            .scale = 1.0f / static_cast<float>(world),
                            .grid = kSmallGrid};
        const auto sum = reduce(topology, how, [&](int rank) {
          return std::vector<float>(static_cast<size_t>(how.n * world),
                                    static_cast<float>(rank + 1));
        });
        for (const Segment& segment : segments) {
          for (int64_t i = segment.begin; i < segment.begin + segment.n; ++i) {
            // 1 / 3 has no exact factor: the sum is exact, its third rounded.
            ASSERT_FLOAT_EQ(sum[static_cast<size_t>(i)], static_cast<float>(world + 1) / 2)
                << "world " << world << " bits " << intra.bits << " " << inter.bits << " at " << i;
            if ((world & (world - 1)) != 0) continue;
            ASSERT_EQ(sum[static_cast<size_t>(i)], static_cast<float>(world + 1) / 2);
          }
        }
      }
    }
  }
}

std::vector<float> gaussian(int64_t n, uint64_t seed) {
  std::vector<float> x(static_cast<size_t>(n));
  const RngKey key{seed, 1, 0};
  for (int64_t i = 0; i < n; ++i)
    x[static_cast<size_t>(i)] = normal_at(key, static_cast<uint64_t>(i));
  return x;
}

/// The rank's gradient: half of what all have in common, and noise of its own.
std::vector<float> gradient(int64_t n, int rank) {
  const std::vector<float> common = gaussian(n, 1);
  std::vector<float> x = gaussian(n, static_cast<uint64_t>(rank) + 2);
  for (size_t i = 0; i < x.size(); ++i) x[i] += 0.5f * common[i];
  return x;
}

double relative_error(const Topology& topology, const Reduction& how) {
  const int world = topology.world();
  const int64_t n = how.n * world;
  std::vector<double> wanted(static_cast<size_t>(n));
  for (int r = 0; r < world; ++r) {
    const std::vector<float> x = gradient(n, r);
    for (size_t i = 0; i < x.size(); ++i) wanted[i] += static_cast<double>(x[i]) / world;
  }
  const auto found = reduce(topology, how, [&](int rank) { return gradient(n, rank); });
  double error = 0, norm = 0;
  for (size_t i = 0; i < wanted.size(); ++i) {
    const double d = static_cast<double>(found[i]) - wanted[i];
    error += d * d;
    norm += wanted[i] * wanted[i];
  }
  return std::sqrt(error / norm);
}

TEST(CodedReduce, ErrorsOfTwoHopsAreThoseOfTheCodes) {
  struct Row {
    std::vector<int> layout;
    double both4, intra4, inter4, both8;
  };
  // What an independent computation gives with steps of max / 8 for 4 bits; ours are max / 7, so that
  // the largest value has a code on both sides.
  constexpr double kStep = 8.0 / 7;
  const std::vector<Row> rows = {{{2, 4}, .1448, .0979, .1086, .0091},
                                 {{4, 8}, .1300, .0805, .1033, .0082}};
  for (const Row& row : rows) {
    const Topology topology = topology_of(row.layout);
    const auto error = [&](int intra, int inter) {
      const int64_t n = 8 * kGrid;
      return relative_error(topology, {.intra = {intra, 1024},
                                       .inter = {inter, 1024},
                                       .segments = {{0, n * topology.world(), true}},
                                       .n = n,
                                       .scale = 1.0f / static_cast<float>(topology.world())});
    };
    const auto expect = [&](int intra, int inter, double wanted) {
      EXPECT_NEAR(error(intra, inter), wanted, 0.05 * wanted) << intra << " " << inter;
    };
    expect(4, 4, kStep * row.both4);
    expect(4, 8, kStep * row.intra4);
    expect(8, 4, kStep * row.inter4);
    expect(8, 8, row.both8);
  }
}

TEST(CodedReduce, BitsDependNeitherOnChunksNorOnTiming) {
  const Topology topology = topology_of({2, 4});
  for (const bool stochastic : {false, true}) {
    for (const bool hadamard : {false, true}) {
      Reduction how{.intra = {8, 512},
                    .inter = {4, 128},
                    .segments = {{0, 11 * kGrid + 5, true}, {12 * kGrid, 4 * kGrid + 77, true}},
                    .n = 5 * kGrid,
                    .hadamard = hadamard,
                    .stochastic = stochastic};
      const auto run = [&] {
        return reduce(topology, how, [&](int r) { return gradient(4 * how.n, r); });
      };
      const std::vector<float> once = run();
      for (const int64_t chunks : {2, 3, 5, 64}) {
        how.chunks = chunks;
        EXPECT_EQ(run(), once) << chunks << " chunks";
      }
      how.jitter_us = 200;
      EXPECT_EQ(run(), once) << "jitter";
    }
  }
}

TEST(CodedReduce, WhatIsNotFiniteArrivesNotFinite) {
  const Topology topology = topology_of({2, 4});
  for (const float bad : {INFINITY, NAN}) {
    const Reduction how{
        .intra = {8, 512}, .inter = {4, 128}, .segments = {{0, 4 * kGrid, true}}, .n = kGrid};
    const auto sum = reduce(topology, how, [&](int rank) {
      std::vector<float> x = gradient(4 * kGrid, rank);
      if (rank == 2) x[3 * kGrid + 7] = bad;
      return x;
    });
    EXPECT_FALSE(std::isfinite(sum[3 * kGrid + 7]));
    EXPECT_TRUE(std::isfinite(sum[7]));
  }
}

TEST(CodedReduce, PartsThatAreOffTheGridAreRefused) {
  run_ranks(topology_of({2}), {}, [](LocalRank& r) {
    std::vector<float> x(2000), y(1000);
    const CodedReduction how{.segments = std::make_shared<Segments>(Segments{{0, 2000, true}}),
                             .intra = {8, 512},
                             .inter = {},
                             .rounding = nullptr,
                             .grid = 512};
    EXPECT_THROW(r.world.coded_reduce_scatter(make_view(x.data(), {2000}, DType::kF32),
                                              make_view(y.data(), {1000}, DType::kF32), how),
                 Error);
  });
}

TEST(Packet, AWholeIsItsPartsOneAfterTheOther) {
  const Segments segments = {{0, 3000, true}, {3072, 100, false}, {4096, 4000, true}};
  const std::vector<float> x = gaussian(8192, 3);
  for (const WireFormat& format : kFormats) {
    const PackedCells four(segments, 0, 8192, 4, format, DType::kBF16);
    const PackedCells one(segments, 0, 8192, 1, format, DType::kBF16);
    std::vector<float> a(8192), b(8192);
    for (const auto& [cells, out] : {std::pair{&four, &a}, std::pair{&one, &b}}) {
      std::vector<std::byte> bytes(static_cast<size_t>(cells->bytes()));
      for (int i = 0; i < cells->count(); ++i) {
        const float* from = x.data() + i * cells->length();
        cells->packet(i).encode({.isa = best_isa(), .from = from}, bytes.data() + cells->offset(i));
        const std::array<const std::byte*, 1> packet = {bytes.data() + cells->offset(i)};
        cells->packet(i).decode(packet,
                                {.isa = best_isa(), .out = out->data() + i * cells->length()});
      }
    }
    EXPECT_EQ(a, b) << format.bits;
    EXPECT_NEAR(a[4100], x[4100], format.bits == 4 ? 0.5 : 0.03);
  }
}

TEST(CodedGather, PartsOfDifferentLengthsArriveInTheirPlaces) {
  for (const auto& layout : kLayouts) {
    const Topology topology = topology_of(layout);
    std::vector<int64_t> ends;
    int64_t total = 0;
    for (int r = 0; r < topology.world(); ++r) ends.push_back(total += r == 1 ? 0 : 1000 * r + 3);
    for (const char* algorithm : {"direct", "ring", "two-level"}) {
      LocalRanksOptions options;
      if (topology.world() > 1 &&
          (topology.levels() > 1 || std::string(algorithm) != "two-level")) {
        options.links.force = algorithm;
      }
      run_ranks(topology, options, [&](LocalRank& r) {
        std::vector<int32_t> out(static_cast<size_t>(total), -1);
        const int64_t begin = r.rank == 0 ? 0 : ends[static_cast<size_t>(r.rank) - 1];
        const int64_t end = ends[static_cast<size_t>(r.rank)];
        std::iota(out.begin() + begin, out.begin() + end, static_cast<int32_t>(begin));
        const View whole = make_view(out.data(), {total}, DType::kI32);
        r.world.all_gather_parts(whole.slice(0, begin, end), whole, ends).synchronize();
        for (int64_t i = 0; i < total; ++i) ASSERT_EQ(out[static_cast<size_t>(i)], i);
      });
    }
  }
}

}  // namespace
}  // namespace zpp
