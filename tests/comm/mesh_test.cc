// Groups: the mesh, splits, the checks at a communicator's door, and dry runs.
#include "comm/mesh.h"

#include <gtest/gtest.h>

#include <future>

#include "tests/comm/local_ranks.h"

namespace zpp {
namespace {

View view_of(std::vector<float>& v) {
  return make_view(v.data(), {static_cast<int64_t>(v.size())}, DType::kF32);
}

float sum_over(Communicator& group, float x) {
  std::vector<float> v = {x};
  group.all_reduce(view_of(v), ReduceOp::kSum).synchronize();
  return v[0];
}

TEST(Mesh, ASumOverAGroupAndThenAcrossIsTheSumOverTheOuterGroup) {
  run_ranks(topology_of({2, 4, 8}), {}, [](LocalRank& r) {
    const auto mine = static_cast<float>(1 << r.rank);
    for (MeshPlane* plane : {&r.mesh.weights, &r.mesh.grads}) {
      for (int outer = 1; outer <= 3; ++outer) {
        const float whole = sum_over(plane->group(outer), mine);
        for (int inner = 0; inner < outer; ++inner) {
          const float part = sum_over(plane->group(inner), mine);
          EXPECT_EQ(sum_over(plane->across(inner, outer), part), whole);
        }
      }
    }
  });
}

TEST(Mesh, GroupsHaveTheNamesAndMembersOfTheirLevels) {
  run_ranks(topology_of({2, 4, 8}), {}, [](LocalRank& r) {
    MeshPlane& plane = r.mesh.weights;
    EXPECT_EQ(plane.group(0).name(), "weights/self");
    EXPECT_EQ(plane.group(1).name(), "weights/node");
    EXPECT_EQ(plane.group(2).name(), "weights/level2");
    EXPECT_EQ(plane.group(3).name(), "weights/world");
    EXPECT_EQ(plane.across(1, 3).name(), "weights/node_of_world");
    EXPECT_EQ(plane.group(0).members(), std::vector<int>{r.rank});
    EXPECT_EQ(plane.group(2).rank(), r.rank % 4);
    EXPECT_EQ(plane.across(1, 3).members(),
              (std::vector<int>{r.rank % 2, r.rank % 2 + 2, r.rank % 2 + 4, r.rank % 2 + 6}));
    EXPECT_EQ(&plane.group(2).stream(), &plane.stream());
    EXPECT_THROW(plane.group(4), Error);
    EXPECT_THROW(plane.across(2, 2), Error);
  });
}

TEST(Split, OrdersByKeyAndKeepsGroupsApart) {
  run_ranks(topology_of({2, 4}), {}, [](LocalRank& r) {
    const auto odd = r.world.split(r.rank % 2, -r.rank, "odd and even");
    EXPECT_EQ(odd->members(), (std::vector<int>{2 + r.rank % 2, r.rank % 2}));
    EXPECT_EQ(sum_over(*odd, static_cast<float>(r.rank)), r.rank % 2 == 0 ? 2.0f : 4.0f);
    // Groups of groups, made in different numbers, do not get in each other's way.
    if (r.rank % 2 == 1) odd->split(0, 0, "odd only");
    const auto all = r.world.split(0, r.rank, "all again");
    EXPECT_EQ(sum_over(*all, 1.0f), 4.0f);
  });
}

TEST(Split, ASubgroupThatRanksDisagreeOnIsRefused) {
  const auto errors = run_ranks_to_errors(topology_of({4}), {}, [](LocalRank& r) {
    r.world.subgroup(r.rank == 3 ? std::vector<int>{0, 3} : std::vector<int>{0, 1, 2}, "torn");
  });
  for (const auto& error : errors) EXPECT_TRUE(error);
}

TEST(Communicator, ChecksItsArgumentsWhenCalled) {
  run_ranks(topology_of({2}), {}, [](LocalRank& r) {
    std::vector<float> four(4), two(2), three(3);
    std::vector<double> wide(4);
    const View wide_view = make_view(wide.data(), {4}, DType::kF64);
    std::vector<int32_t> integers(4);
    const View integer_view = make_view(integers.data(), {4}, DType::kI32);
    const View big = view_of(four);
    const auto refused = [](const std::function<void()>& call, const char* why) {
      try {
        call();
        ADD_FAILURE() << "accepted; expected: " << why;
      } catch (const Error& error) {
        EXPECT_EQ(error.code(), Code::kInvalidArgument);
        EXPECT_NE(std::string(error.what()).find(why), std::string::npos) << error.what();
      }
    };
    Communicator& c = r.world;
    refused([&] { c.all_gather(view_of(three), big); }, "should have 6");
    refused([&] { c.all_gather(view_of(two), wide_view); }, "in is f32 but out is f64");
    refused([&] { c.all_gather(big.slice(0, 1, 3), big); }, "overlap");
    refused([&] { c.all_gather(big.reshape({2, 2}).transpose(0, 1), big); }, "dense");
    refused([&] { c.reduce_scatter(integer_view, integer_view, ReduceOp::kSum); }, "i32");
    refused([&] { c.reduce_scatter(big, view_of(three), ReduceOp::kSum); }, "should have 6");
    refused([&] { c.all_reduce(integer_view, ReduceOp::kAvg); }, "no mean");
    refused([&] { c.all_to_all(view_of(three), view_of(three)); }, "multiple of 2");
    refused([&] { c.all_to_all(big, big); }, "overlap");
    refused([&] { c.broadcast(big, 2); }, "root is 2");
    refused([&] { c.all_reduce(make_view(nullptr, {4}, DType::kF32), ReduceOp::kSum); },
            "inout is absent");
    EXPECT_EQ(sum_over(c, 1.0f), 2.0f) << "a refused call leaves no trace";
  });
}

TEST(Communicator, WaitsForTheEventsItIsGivenAndForNothingElse) {
  run_ranks(topology_of({2}), {}, [](LocalRank& r) {
    std::vector<float> x = {0};
    std::vector<float> y = {1};
    Stream& compute = r.runtime.compute();
    std::promise<void> go_on;
    compute.host("slow", [&] {
      go_on.get_future().wait();
      x[0] = 1;
    });
    const Event ready = compute.record();
    r.mesh.weights.world().all_reduce(view_of(y), ReduceOp::kSum).synchronize();
    r.world.all_reduce(view_of(x), ReduceOp::kSum, {ready}).wait(compute);
    EXPECT_FALSE(ready.ready());
    go_on.set_value();
    float seen = 0;
    compute.host("read", [&] { seen = x[0]; });
    compute.synchronize();
    EXPECT_EQ(seen, 2.0f);
  });
}

/// For dry runs: there is no other rank.
class NoTransport final : public Transport {
 public:
  explicit NoTransport(int ranks) : ranks_(ranks) {}
  int rank() const override { return 5; }
  int size() const override { return ranks_; }
  std::string describe(int) const override { return "nobody"; }
  Ticket send(int, const Envelope&, std::span<const std::byte>) override { return touched(); }
  Ticket receive(int, const Envelope&, std::span<std::byte>) override { return touched(); }
  void wait(Ticket, Millis) override { touched(); }
  void abort(const Error&) noexcept override {}

 private:
  static Ticket touched() { throw Error(Code::kInternal, "a dry run touched its transport"); }
  const int ranks_;
};

TEST(DryRun, WalksThroughAMeshOfManyRanksAndCountsNothing) {
  const Topology topology = topology_of({8, 384});
  NoTransport transport(384);
  Runtime::Options dry;
  dry.threads = 1;
  dry.dry = true;
  Runtime runtime(dry);
  Ledger ledger(topology.levels());
  CpuStream::Options stream_options;
  stream_options.name = "weights";
  stream_options.dry = true;
  CpuStream stream(runtime.workers(), stream_options);
  HostCommunicatorOptions options;
  options.name = "weights/world";
  options.ledger = &ledger;
  MeshPlane plane(make_host_communicator(stream, transport, topology, options), topology);
  const Tensor in = runtime.tensor({1 << 20}, DType::kBF16);
  const Tensor out = runtime.tensor({384, 1 << 20}, DType::kBF16);
  plane.world().all_gather(in.view(), out.view()).synchronize();
  plane.group(1).barrier().synchronize();
  EXPECT_EQ(plane.across(1, 2).size(), 48);
  EXPECT_EQ(plane.across(1, 2).rank(), 0);
  EXPECT_EQ(plane.group(1).rank(), 5);
  EXPECT_THROW(plane.world().split(0, 0, "x"), Error);
  EXPECT_THROW(plane.world().all_gather(in.view(), in.view()), Error) << "arguments are checked";
  EXPECT_TRUE(ledger.entries().empty());
}

}  // namespace
}  // namespace zpp
