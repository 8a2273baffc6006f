#include "parallel/zero_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace zpp {
namespace {

ShardLevels levels(const std::string& preset, const std::vector<int>& nested) {
  ZeroConfig config;
  config.preset = preset;
  return shard_levels(config, Topology::nested(nested));
}

TEST(ZeroConfig, PresetsArePointsOfTheThreeChoices) {
  EXPECT_EQ(levels("ddp", {4, 8}), (ShardLevels{0, 0, 0}));
  EXPECT_EQ(levels("zero1", {4, 8}), (ShardLevels{0, 0, 2}));
  EXPECT_EQ(levels("zero2", {4, 8}), (ShardLevels{0, 2, 2}));
  EXPECT_EQ(levels("zero3", {4, 8}), (ShardLevels{2, 2, 2}));
  EXPECT_EQ(levels("hsdp", {4, 8}), (ShardLevels{1, 1, 1}));
  EXPECT_EQ(levels("hybrid", {2, 4, 8}), (ShardLevels{1, 1, 3}));
}

TEST(ZeroConfig, TheNodeOfRanksThatShareOneIsTheWorld) {
  EXPECT_EQ(levels("hsdp", {4}), (ShardLevels{1, 1, 1}));
  EXPECT_EQ(levels("hybrid", {4}), (ShardLevels{1, 1, 1}));
}

ZeroConfig custom(const std::string& params, const std::string& grads,
                  const std::string& optimizer) {
  ZeroConfig config;
  config.preset = "custom";
  config.shard = {.params = params, .grads = grads, .optimizer = optimizer};
  return config;
}

std::string error_of(const ZeroConfig& config, const std::vector<int>& nested) {
  try {
    shard_levels(config, Topology::nested(nested));
  } catch (const Error& error) {
    return error.what();
  }
  return {};
}

TEST(ZeroConfig, ACustomChoiceMayUseDeeperLevels) {
  EXPECT_EQ(shard_levels(custom("node", "level2", "world"), Topology::nested(std::vector{2, 4, 8})),
            (ShardLevels{1, 2, 3}));
}

TEST(ZeroConfig, ChoicesThatCannotBeAreRefused) {
  EXPECT_THAT(error_of(custom("world", "self", "world"), {2, 4}),
              testing::HasSubstr("at least as far as the one before"));
  EXPECT_THAT(error_of(custom("self", "level2", "world"), {2, 4}), testing::HasSubstr("level2"));
  EXPECT_THAT(error_of(custom("self", "", "world"), {2, 4}), testing::HasSubstr("grads: missing"));
  EXPECT_THAT(error_of(custom("rack", "world", "world"), {2, 4}), testing::HasSubstr("rack"));
}

TEST(ZeroConfig, AResolvedSectionResolvesToItself) {
  ZeroConfig config;
  config.preset = "hybrid";
  Problems problems;
  config.resolve(problems);
  EXPECT_EQ(config.shard.grads, "node");
  config.resolve(problems);
  EXPECT_TRUE(problems.empty());
  config.preset = "zero3";
  config.resolve(problems);
  EXPECT_THAT(problems.lines(), testing::Contains(testing::HasSubstr("contradicts preset zero3")));
}

}  // namespace
}  // namespace zpp
