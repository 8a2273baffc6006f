#include "comm/topology.h"

#include <gtest/gtest.h>

#include <functional>

#include "comm/levels.h"
#include "core/error.h"

namespace zpp {
namespace {

Topology nested(const std::vector<int>& sizes) { return Topology::nested(sizes); }

std::string message_of(const std::function<void()>& fn) {
  try {
    fn();
  } catch (const Error& error) {
    EXPECT_EQ(error.code(), Code::kInvalidArgument);
    return error.what();
  }
  ADD_FAILURE() << "no error";
  return {};
}

TEST(Topology, KnowsTheGroupsOfEveryLevel) {
  const Topology t = nested({2, 4, 8});
  EXPECT_EQ(t.world(), 8);
  EXPECT_EQ(t.levels(), 3);
  EXPECT_EQ(t.group(0, 5), (std::vector<int>{5}));
  EXPECT_EQ(t.group(1, 5), (std::vector<int>{4, 5}));
  EXPECT_EQ(t.group(2, 5), (std::vector<int>{4, 5, 6, 7}));
  EXPECT_EQ(t.group(3, 5).size(), 8u);
}

TEST(Topology, ClassifiesLinksByTheSmallestCommonGroup) {
  const Topology t = nested({2, 4, 8});
  EXPECT_EQ(t.link(3, 3), 0);
  EXPECT_EQ(t.link(2, 3), 1);
  EXPECT_EQ(t.link(1, 2), 2);
  EXPECT_EQ(t.link(7, 0), 3);
  EXPECT_EQ(nested({1, 4}).link(0, 1), 2) << "nodes of one rank have no links inside";
}

TEST(Topology, NamesItsLevelsAndFindsThemByName) {
  const Topology t = nested({2, 4, 8});
  for (int level = 0; level <= 3; ++level) EXPECT_EQ(t.level_of(t.level_name(level)), level);
  EXPECT_EQ(t.level_name(2), "level2");
  EXPECT_EQ(nested({4}).level_of("node"), 1);
  EXPECT_EQ(nested({4}).level_of("world"), 1);
  EXPECT_NE(message_of([&] { t.level_of("rack"); }).find("self, node, level2, world"),
            std::string::npos);
}

TEST(Topology, RefusesSizesThatDoNotNest) {
  EXPECT_NE(message_of([] { nested({2, 5}); }).find("5 is no multiple of 2"), std::string::npos);
  message_of([] { nested({}); });
  message_of([] { nested({0, 4}); });
}

TEST(Topology, TakesHostsAsNodes) {
  const std::vector<std::string> hosts = {"a", "a", "a", "b", "b", "b"};
  const Topology t = Topology::from_hosts(hosts);
  EXPECT_EQ(t.levels(), 2);
  EXPECT_EQ(t.group_size(1), 3);
  const std::vector<std::string> one = {"a", "a"};
  EXPECT_EQ(Topology::from_hosts(one).levels(), 1);
  const std::vector<std::string> apart = {"a", "b", "c"};
  EXPECT_EQ(Topology::from_hosts(apart).group_size(1), 1);
  EXPECT_EQ(Topology::from_hosts(apart).link(0, 2), 2);
}

TEST(Topology, RefusesUnevenHostsAndScatteredRanksWithAList) {
  const std::vector<std::string> uneven = {"a", "a", "b"};
  EXPECT_NE(message_of([&] { Topology::from_hosts(uneven); }).find("a x 2, b x 1"),
            std::string::npos);
  const std::vector<std::string> scattered = {"a", "b", "a", "b"};
  EXPECT_NE(message_of([&] { Topology::from_hosts(scattered); }).find("host a are not neighbours"),
            std::string::npos);
}

TEST(LevelChain, FollowsTheMembersThatThereAre) {
  const Topology t = nested({4, 8, 16});
  const auto chain = [&](const std::vector<int>& members) { return level_chain(t, members); };
  EXPECT_EQ(chain({0, 1, 2, 3, 4, 5, 6, 7}), (std::vector<int>{4, 8}));
  EXPECT_EQ(chain({0, 1, 2, 3}), (std::vector<int>{4})) << "all in one node";
  EXPECT_EQ(chain({1, 5, 9, 13}), (std::vector<int>{2, 4})) << "equal places of nodes";
  EXPECT_EQ(chain({1, 5}), (std::vector<int>{2}));
  EXPECT_EQ(chain({0, 1, 2, 4}), (std::vector<int>{4})) << "uneven";
  EXPECT_EQ(chain({0, 4, 1, 5}), (std::vector<int>{4})) << "nodes torn apart";
  EXPECT_EQ(chain({4, 5, 0, 1}), (std::vector<int>{2, 4})) << "any order of nodes";
  EXPECT_EQ(chain({3}), (std::vector<int>{1}));
}

TEST(Blocks, CoverABufferThatDoesNotDivide) {
  const Blocks blocks = Blocks::cut(10, 4, 2);
  EXPECT_EQ(blocks.per, 3);
  EXPECT_EQ(blocks.length(2), 3);
  EXPECT_EQ(blocks.length(3), 1);
  EXPECT_EQ(Blocks::cut(2, 4, 4).length(3), 0);
  const Chunks chunks(Blocks{1000, 1000, 4}, 1024);
  EXPECT_EQ(chunks.count(), 4);
  EXPECT_EQ(chunks[3].of(1000), 1000 - 3 * 256);
  EXPECT_EQ(chunks[3].of(768), 0);
}

}  // namespace
}  // namespace zpp
