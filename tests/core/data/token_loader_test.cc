#include "core/data/token_loader.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "tests/core/data/test_files.h"

namespace zpp {
namespace {

using testing_data::invalid_argument;
using testing_data::raw;
using testing_data::zpp_file;

class Loader : public testing_data::DataTest {
 protected:
  // Tokens first, first + 1, ... so that every token tells where it came from.
  DataSource counting_file(const std::string& name, int64_t tokens, uint16_t first = 0) const {
    std::vector<uint16_t> values(static_cast<size_t>(tokens));
    std::iota(values.begin(), values.end(), first);
    return {.path = put(name, zpp_file(values, 65536, std::nullopt))};
  }
  DataSource weighted(DataSource source, double weight) const {
    source.weight = weight;
    return source;
  }
};

// First token of each of the given samples.
std::vector<int32_t> starts(const TokenLoader& loader, int64_t first, int64_t count) {
  const HostBatch batch = loader.batch(first, count);
  std::vector<int32_t> out;
  for (int64_t i = 0; i < count; ++i)
    out.push_back(batch.tokens[static_cast<size_t>(i * batch.length)]);
  return out;
}

TEST_F(Loader, ASampleIsAWindowAndItsTargetsAreShiftedByOne) {
  const TokenLoader loader({counting_file("a", 41)}, {.context = 8});
  EXPECT_EQ(loader.windows(), 5);
  const HostBatch batch = loader.batch(3, 2);
  EXPECT_EQ(batch.first_sample, 3);
  EXPECT_EQ(batch.samples, 2);
  EXPECT_EQ(batch.length, 8);
  EXPECT_EQ(batch.valid, 16);
  EXPECT_TRUE(batch.doc_start.empty());
  for (size_t row = 0; row < 2; ++row) {
    EXPECT_EQ(batch.tokens[row * 8] % 8, 0);
    for (size_t t = 0; t < 8; ++t) {
      EXPECT_EQ(batch.tokens[row * 8 + t], batch.tokens[row * 8] + static_cast<int32_t>(t));
      EXPECT_EQ(batch.targets[row * 8 + t], batch.tokens[row * 8 + t] + 1);
    }
  }
}

TEST_F(Loader, EveryEpochVisitsEveryWindowOfAllFilesOnceInAnotherOrder) {
  const TokenLoader loader({counting_file("a", 8 * 30 + 1), counting_file("b", 8 * 70 + 5, 1000)},
                           {.context = 8, .seed = 3});
  std::vector<int32_t> first = starts(loader, 0, 100), second = starts(loader, 100, 100);
  EXPECT_NE(first, second);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  std::sort(first.begin(), first.end());
  std::sort(second.begin(), second.end());
  EXPECT_EQ(first, second);
  EXPECT_EQ(std::adjacent_find(first.begin(), first.end()), first.end());
  EXPECT_EQ(first.back(), 1000 + 69 * 8);
}

TEST_F(Loader, TheGlobalOrderDoesNotDependOnWorldSizeOrMicroBatch) {
  const DataSource a = weighted(counting_file("a", 500), 3),
                   b = weighted(counting_file("b", 300, 1000), 1);
  const TokenLoader loader({a, b}, {.context = 8, .seed = 5});
  const int64_t global = 24, steps = 4;
  const std::vector<int32_t> expected = starts(loader, 0, global * steps);
  for (int64_t world : {1, 2, 3, 8}) {
    for (int64_t micro : {1, 3}) {
      std::vector<int32_t> seen(expected.size(), -1);
      for (int64_t rank = 0; rank < world; ++rank) {
        const TokenLoader mine({a, b}, {.context = 8, .seed = 5});
        const int64_t per_rank = global / world;
        for (int64_t step = 0; step < steps; ++step)
          for (int64_t at = 0; at < per_rank; at += micro) {
            const int64_t first = step * global + rank * per_rank + at;
            const auto got = starts(mine, first, std::min(micro, per_rank - at));
            std::copy(got.begin(), got.end(), seen.begin() + first);
          }
      }
      EXPECT_EQ(seen, expected) << "world " << world << " micro " << micro;
    }
  }
}

TEST_F(Loader, ADifferentSeedIsADifferentOrder) {
  const DataSource a = counting_file("a", 1000);
  EXPECT_NE(starts(TokenLoader({a}, {.context = 8, .seed = 1}), 0, 50),
            starts(TokenLoader({a}, {.context = 8, .seed = 2}), 0, 50));
}

TEST_F(Loader, WeightsAreRespectedWithinOneSampleAndFilesRepeatWithoutReplacement) {
  const TokenLoader loader({weighted(counting_file("a", 8 * 10 + 1), 1),
                            weighted(counting_file("b", 8 * 1000 + 1, 1000), 4)},
                           {.context = 8, .seed = 9});
  const std::vector<int32_t> all = starts(loader, 0, 500);
  std::map<int32_t, int> visits;
  int64_t from_a = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i] < 1000) ++from_a, ++visits[all[i]];
    EXPECT_LT(std::abs(static_cast<double>(from_a) - 0.2 * static_cast<double>(i + 1)), 1.0);
  }
  EXPECT_EQ(from_a, 100);
  EXPECT_EQ(visits.size(), 10u);
  for (const auto& [start, n] : visits) EXPECT_EQ(n, 10) << start;
}

TEST_F(Loader, EvaluationTakesWindowsInFileOrder) {
  const TokenLoader loader({counting_file("a", 20), counting_file("b", 20, 1000)},
                           {.context = 8, .seed = 4});
  EXPECT_EQ(loader.windows(), 4);
  const HostBatch batch = loader.eval_batch(1, 3);
  EXPECT_EQ(batch.tokens[0], 8);
  EXPECT_EQ(batch.tokens[8], 1000);
  EXPECT_EQ(batch.tokens[16], 1008);
  EXPECT_EQ(invalid_argument([&] { loader.eval_batch(2, 3); }),
            "data: evaluation wants windows 2 to 4, the files have 4");
}

TEST_F(Loader, TheDocumentMaskIgnoresTargetsOfTheNextDocument) {
  //                                        0  1   2  3  4   5   6  7  8
  const std::string name = put("a", zpp_file({10, 11, 256, 12, 256, 256, 13, 14, 15}));
  DataSource source{.path = name};
  const TokenLoader loader({source}, {.context = 4, .document_mask = true});
  const HostBatch batch = loader.eval_batch(0, 2);
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{10, 11, 256, 12, 256, 256, 13, 14}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{11, 256, -1, 256, -1, -1, 14, 15}));
  EXPECT_EQ(batch.doc_start, (std::vector<int32_t>{0, 0, 0, 3, 0, 1, 2, 2}));
  EXPECT_EQ(batch.valid, 5);
}

TEST_F(Loader, ATargetInTheNextDocumentIsIgnoredAtTheEndOfAWindowToo) {
  DataSource source{.path = put("a", zpp_file({10, 256, 11, 12, 13}))};
  const HostBatch batch =
      TokenLoader({source}, {.context = 2, .document_mask = true}).eval_batch(0, 2);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{256, -1, 12, 13}));
  EXPECT_EQ(batch.doc_start, (std::vector<int32_t>{0, 0, 0, 0}));
}

TEST_F(Loader, MegatronDocumentsComeFromTheIndex) {
  put("d.bin", testing_data::megatron_bin());
  DataSource source{.path = put("d.idx", testing_data::megatron_idx())};
  const HostBatch batch =
      TokenLoader({source}, {.context = 4, .document_mask = true}).eval_batch(0, 1);
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{2, 3, -1, 5}));
  EXPECT_EQ(batch.doc_start, (std::vector<int32_t>{0, 0, 0, 3}));
}

TEST_F(Loader, UnusableSourcesHaveTheirOwnMessages) {
  const DataSource a = counting_file("a", 20);
  const TokenLoader::Options options{.context = 8};
  EXPECT_EQ(invalid_argument([&] { TokenLoader({}, options); }), "data: no files are given");
  EXPECT_EQ(invalid_argument([&] { TokenLoader({a}, {.context = 20}); }),
            a.path + ": 20 tokens, but one sample takes 21 (the context and one more)");
  EXPECT_EQ(
      invalid_argument([&] {
        TokenLoader({weighted(a, 1), a}, options);
      }),
      "data: 1 of 2 files have a weight, " + a.path + " has none: give all of them one, or none");
  EXPECT_EQ(invalid_argument([&] { TokenLoader({weighted(a, 0)}, options); }),
            "data: the weights of all files are zero");
  const DataSource nano{.path = put("raw", raw<uint16_t>(std::vector<uint16_t>(50, 1))),
                        .format = "raw_u16"};
  EXPECT_EQ(invalid_argument([&] { TokenLoader({nano}, {.context = 8, .document_mask = true}); }),
            nano.path +
                ": a document mask needs the id that ends a document, which raw_u16 files do not "
                "hold: set "
                "\"eot\" beside its path (50256 for GPT-2 tokens)");
  EXPECT_EQ(invalid_argument([&] {
              TokenLoader({nano}, {.context = 8, .vocab = 1}).batch(0, 6);
            }).substr(0, nano.path.size() + 8),
            nano.path + ": token ");
}

TEST_F(Loader, EveryTokenOfABatchIsCheckedAgainstTheVocabularyTheLastTargetToo) {
  const DataSource a = counting_file("a", 9);
  DataSource nano{.path = put("raw", raw<uint16_t>({1, 1, 1, 1, 9})), .format = "raw_u16"};
  EXPECT_EQ(invalid_argument([&] { TokenLoader({nano}, {.context = 4, .vocab = 9}).batch(0, 1); }),
            nano.path + ": token 4 (at byte 8) is 9, but the vocabulary has the ids 0 to 8");
}

}  // namespace
}  // namespace zpp
