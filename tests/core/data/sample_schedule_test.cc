#include "core/data/sample_schedule.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "core/error.h"
#include "core/rng.h"

namespace zpp {
namespace {

// Largest distance of any source from its share over the first `samples`.
double worst_deviation(const std::vector<double>& weights, int64_t samples) {
  const SampleSchedule schedule(weights);
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  std::vector<int64_t> given(weights.size(), 0);
  double worst = 0;
  for (int64_t i = 0; i < samples; ++i) {
    const SampleSchedule::Place place = schedule.at(i);
    const auto source = static_cast<size_t>(place.source);
    EXPECT_EQ(place.index, given[source]) << "sample " << i;
    ++given[source];
    for (size_t s = 0; s < weights.size(); ++s) {
      const double share = weights[s] / sum * static_cast<double>(i + 1);
      worst = std::max(worst, std::abs(share - static_cast<double>(given[s])));
    }
  }
  return worst;
}

TEST(SampleSchedule, EachSourceHasItsShareToWithinOneSample) {
  EXPECT_EQ(worst_deviation({1}, 100), 0);
  EXPECT_LT(worst_deviation({0.7, 0.3}, 1000), 1);
  EXPECT_LT(worst_deviation({1, 1, 1, 1, 1, 1, 1}, 1000), 1);
  EXPECT_LT(worst_deviation({100, 1, 1, 1, 1, 1, 1, 1}, 2000), 1);
  EXPECT_LT(worst_deviation({0.5, 0.25, 0.125, 0.0625, 0.0625}, 1000), 1);
  std::vector<double> many;
  for (uint64_t i = 0; i < 40; ++i)
    many.push_back(1 + RngKey{.seed = 1, .name_hash = 2, .offset = 0}.bits(i) % 1000);
  EXPECT_LT(worst_deviation(many, 5000), 1);
}

TEST(SampleSchedule, IrrationalWeightsStayWithinTheRounding) {
  EXPECT_LT(worst_deviation({std::sqrt(2.0), 1, M_PI}, 65536), 1.5);
}

TEST(SampleSchedule, SimpleWeightsAreExactForever) {
  const SampleSchedule schedule({0.7, 0.2, 0.1});
  EXPECT_EQ(schedule.period(), 10);
  const int64_t far = 7'000'000'000'000;
  int64_t first = 0;
  for (int64_t i = far; i < far + 10; ++i)
    if (schedule.at(i).source == 0) first = std::max(first, schedule.at(i).index);
  EXPECT_EQ(first, far / 10 * 7 + 6);
}

TEST(SampleSchedule, SourcesOfWeightZeroAreNeverDrawnAndTinyOnesAre) {
  const SampleSchedule zero({1, 0, 1});
  for (int64_t i = 0; i < 100; ++i) EXPECT_NE(zero.at(i).source, 1);
  const SampleSchedule tiny({1, 1e-9});
  int64_t drawn = 0;
  for (int64_t i = 0; i < tiny.period(); ++i) drawn += tiny.at(i).source == 1;
  EXPECT_EQ(drawn, 1);
}

TEST(SampleSchedule, RefusesWeightsWithoutMeaning) {
  EXPECT_THROW(SampleSchedule({}), Error);
  EXPECT_THROW(SampleSchedule({0, 0}), Error);
  EXPECT_THROW(SampleSchedule({1, -1}), Error);
  EXPECT_THROW(SampleSchedule({1, std::numeric_limits<double>::quiet_NaN()}), Error);
  EXPECT_THROW(SampleSchedule(std::vector<double>(2000, 1.0)), Error);
}

}  // namespace
}  // namespace zpp
