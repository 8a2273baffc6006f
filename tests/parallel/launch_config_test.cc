#include "parallel/launch_config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/error.h"

namespace zpp {
namespace {

LaunchSection section(const std::string& text) { return parse_config<LaunchSection>(text); }

TEST(LaunchConfig, CountsTheRanksOfAllPretendedNodesOrHosts) {
  EXPECT_EQ(section("{}").world(), 1);
  EXPECT_EQ(section(R"({"ranks_per_node": 3})").world(), 3);
  EXPECT_EQ(section(R"({"ranks_per_node": 4, "nodes": 2})").world(), 8);
  EXPECT_EQ(section(R"({"ranks_per_node": 4, "hosts": ["a", "b", "c"]})").world(), 12);
}

TEST(LaunchConfig, LeavesTheNodesToTheHostsUnlessToldOtherwise) {
  EXPECT_TRUE(nested_sizes(section("{}"), 8).empty());
  EXPECT_TRUE(nested_sizes(section(R"({"hosts": ["a", "b"]})"), 8).empty());
}

TEST(LaunchConfig, PretendedNodesAndLevelsNestFromTheInside) {
  EXPECT_EQ(nested_sizes(section(R"({"nodes": 2})"), 8), (std::vector<int>{4, 8}));
  EXPECT_EQ(nested_sizes(section(R"({"levels": "2x4"})"), 8), (std::vector<int>{4, 8}));
  EXPECT_EQ(nested_sizes(section(R"({"levels": "3x2"})"), 6), (std::vector<int>{2, 6}));
  EXPECT_EQ(nested_sizes(section(R"({"levels": "2x3x4"})"), 24), (std::vector<int>{4, 12, 24}));
}

TEST(LaunchConfig, RefusesAWorldThatCannotBeWhatItSays) {
  EXPECT_THROW(nested_sizes(section(R"({"nodes": 3})"), 8), Error);
  EXPECT_THROW(nested_sizes(section(R"({"levels": "2x2x2"})"), 6), Error);
  EXPECT_THROW(nested_sizes(section(R"({"levels": "16384x16384x16384x16384x16384"})"), 6), Error);
}

TEST(LaunchConfig, TellsWhatIsWrongBetweenItsFields) {
  const auto lines = [](const std::string& text) {
    Problems problems;
    check_launch(section(text), problems);
    return problems.lines();
  };
  EXPECT_TRUE(lines(R"({"levels": "2x2x2", "ranks_per_node": 8})").empty());
  for (const char* levels : {"2x", "x2", "2X2", "0x2", "-1x2", "2 x 2", "99999"}) {
    const std::string text = std::string(R"({"levels": ")") + levels + R"("})";
    EXPECT_EQ(lines(text).size(), 1u) << levels;
  }
  EXPECT_EQ(lines(R"({"nodes": 2, "hosts": ["a"]})").size(), 1u);
  EXPECT_EQ(lines(R"({"hosts": ["-x"]})").size(), 1u);
  EXPECT_EQ(lines(R"({"ssh": []})").size(), 1u);
  EXPECT_EQ(lines(R"({"ranks_per_node": 16384, "nodes": 2})").size(), 1u);
}

}  // namespace
}  // namespace zpp
