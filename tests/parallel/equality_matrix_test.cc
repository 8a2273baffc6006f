// Training spread over ranks against training in one process: every number of ranks with every
// preset, recompute, prefetch, number of micro-batches and model.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <tuple>
#include <vector>

#include "tests/parallel/tiny_run.h"

namespace zpp {
namespace {

const std::vector<std::string> kPresets = {"ddp", "zero1", "zero2", "zero3", "hsdp", "hybrid"};

/// For each number of ranks the ways to lay them out; points of the matrix take turns with them.
const std::map<int, std::vector<std::vector<int>>> kLayouts = {
    {1, {{1}}},         {2, {{2}, {1, 2}}},         {3, {{3}, {1, 3}}},
    {4, {{2, 4}, {4}}}, {6, {{3, 6}, {2, 6}, {6}}}, {8, {{2, 4, 8}, {4, 8}, {8}}},
};

std::vector<int> worlds() {
  std::vector<int> all;
  for (const auto& [world, layouts] : kLayouts) all.push_back(world);
  return all;
}

const std::vector<int>& layout(int world, size_t turn) {
  const auto& layouts = kLayouts.at(world);
  return layouts[turn % layouts.size()];
}

/// One process that takes all of a step's samples at once.
const TinyResult& alone(const std::string& model) {
  static std::map<std::string, TinyResult> known;
  const auto at = known.find(model);
  if (at != known.end()) return at->second;
  return known[model] = run_tiny({.model = model});
}

void expect_same_training(const TinyRun& run) {
  const TinyResult found = run_tiny(run), &wanted = alone(run.model);
  ASSERT_EQ(found.losses.size(), wanted.losses.size()) << run.describe();
  for (size_t i = 0; i < wanted.losses.size(); ++i) {
    ASSERT_NEAR(found.losses[i], wanted.losses[i], 2e-5 * wanted.losses[i])
        << run.describe() << ", loss of step " << i;
    ASSERT_NEAR(found.norms[i], wanted.norms[i], 1e-5 * wanted.norms[i])
        << run.describe() << ", norm of step " << i;
  }
  ASSERT_EQ(found.samples, wanted.samples) << run.describe();
}

using Place = std::tuple<int, std::string>;  // ranks, preset

std::string name_of(const testing::TestParamInfo<Place>& info) {
  return std::get<std::string>(info.param) + "_" + std::to_string(std::get<int>(info.param));
}

class EqualityMatrix : public testing::TestWithParam<Place> {};

TEST_P(EqualityMatrix, LossesNormsAndSamplesAreThoseOfOneProcess) {
  const auto& [world, preset] = GetParam();
  for (const int model : {0, 1}) {
    for (const int recompute : {0, 1}) {
      for (const int prefetch : {0, 1, 2}) {
        for (const int doublings : {0, 1, 2}) {
          const int turn = model + recompute + prefetch + doublings;
          expect_same_training({.model = model == 0 ? "gpt" : "llama",
                                .nested = layout(world, static_cast<size_t>(turn)),
                                .preset = preset,
                                .recompute = recompute == 1,
                                .prefetch = prefetch,
                                .micro_batches = int64_t{1} << doublings});
        }
      }
    }
  }
}
INSTANTIATE_TEST_SUITE_P(All, EqualityMatrix,
                         testing::Combine(testing::ValuesIn(worlds()), testing::ValuesIn(kPresets)),
                         name_of);

class EqualityBits : public testing::TestWithParam<Place> {};

/// A point of the matrix for each number of ranks and preset.
TinyRun point_of(const Place& place) {
  const auto& [world, preset] = place;
  const auto p = std::find(kPresets.begin(), kPresets.end(), preset) - kPresets.begin();
  const auto turn = static_cast<size_t>(p + world);
  return {.model = p % 2 == 0 ? "gpt" : "llama",
          .nested = layout(world, turn / 2),
          .preset = preset,
          .recompute = turn % 4 < 2,
          .prefetch = static_cast<int64_t>(turn % 3),
          .micro_batches = int64_t{1} << (turn / 3 % 3),
          .steps = 5};
}

TEST_P(EqualityBits, AreTheSameInEveryRun) {
  const TinyRun run = point_of(GetParam());
  const TinyResult first = run_tiny(run);
  EXPECT_EQ(run_tiny(run), first) << run.describe() << ", run twice";
  TinyRun serial = run;
  serial.overlap = !run.overlap;
  EXPECT_EQ(run_tiny(serial), first) << serial.describe();
  TinyRun delayed = run;
  delayed.jitter_us = 50;
  EXPECT_EQ(run_tiny(delayed), first) << delayed.describe();
  delayed.jitter_us = 0;
  delayed.compute_jitter_us = 200;  // updates are late when the next step gathers
  EXPECT_EQ(run_tiny(delayed), first) << run.describe() << ", with slow computing";
}
INSTANTIATE_TEST_SUITE_P(All, EqualityBits,
                         testing::Combine(testing::ValuesIn(worlds()), testing::ValuesIn(kPresets)),
                         name_of);

}  // namespace
}  // namespace zpp
