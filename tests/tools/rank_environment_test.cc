#include "tools/rank_environment.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>

#include "core/error.h"

namespace zpp {
namespace {

using testing::HasSubstr;
using Variables = std::map<std::string, std::string>;

std::optional<RankEnvironment> place_in(const Variables& variables) {
  return find_place([&variables](const std::string& name) -> std::optional<std::string> {
    const auto found = variables.find(name);
    if (found == variables.end()) return std::nullopt;
    return found->second;
  });
}

const Variables kSlurm = {{"SLURM_JOB_ID", "4711"},
                          {"SLURM_STEP_ID", "0"},
                          {"SLURM_PROCID", "5"},
                          {"SLURM_STEP_NUM_TASKS", "8"},
                          {"SLURM_LOCALID", "1"},
                          {"SLURM_NODEID", "1"},
                          {"SLURM_STEP_TASKS_PER_NODE", "4(x2)"},
                          {"SLURM_STEP_NODELIST", "gpu[03-04]"}};

const Variables kOpenMpi = {{"OMPI_COMM_WORLD_RANK", "1"},
                            {"OMPI_COMM_WORLD_SIZE", "2"},
                            {"OMPI_COMM_WORLD_LOCAL_RANK", "1"},
                            {"OMPI_COMM_WORLD_LOCAL_SIZE", "2"},
                            {"OMPI_MCA_ess_base_jobid", "99"}};

TEST(RankEnvironment, AProcessThatNobodyLaunchedHasNoPlace) {
  EXPECT_FALSE(place_in({}));
  EXPECT_FALSE(place_in({{"RANK", "0"}}));
  EXPECT_FALSE(place_in({{"RANK", "0"}, {"WORLD_SIZE", "1"}}));
}

TEST(RankEnvironment, ReadsWhatTorchrunSets) {
  const auto place = place_in({{"RANK", "3"},
                               {"WORLD_SIZE", "4"},
                               {"LOCAL_RANK", "1"},
                               {"LOCAL_WORLD_SIZE", "2"},
                               {"MASTER_ADDR", "gpu1"},
                               {"MASTER_PORT", "29500"},
                               {"TORCHELASTIC_RUN_ID", "x"},
                               {"TORCHELASTIC_USE_AGENT_STORE", "True"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 3);
  EXPECT_EQ(place->world, 4);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_world, 2);
  EXPECT_EQ(place->master_address, "gpu1");
  EXPECT_EQ(place->master_port, 29501) << "torchrun's agent listens at MASTER_PORT";
  EXPECT_FALSE(place->launched);
}

TEST(RankEnvironment, PlainVariablesMeetAtTheirPort) {
  const auto place = place_in({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "29500"}});
  ASSERT_TRUE(place);
  EXPECT_EQ(place->master_port, 29500);
}

TEST(RankEnvironment, ReadsWhatTheLauncherSetsEvenForOneRank) {
  const auto place = place_in({{"RANK", "0"},
                               {"WORLD_SIZE", "1"},
                               {"ZPP_LAUNCHED", "1"},
                               {"ZPP_ATTEMPT", "2"},
                               {"ZPP_THREADS", "3"},
                               {"ZPP_JOB_TOKEN", "secret"}});
  ASSERT_TRUE(place);
  EXPECT_TRUE(place->launched);
  EXPECT_EQ(place->attempt, 2);
  EXPECT_EQ(place->threads, 3);
  EXPECT_EQ(place->token, "secret");
}

TEST(RankEnvironment, ReadsASlurmStep) {
  const auto place = place_in(kSlurm);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 5);
  EXPECT_EQ(place->world, 8);
  EXPECT_EQ(place->local_rank, 1);
  EXPECT_EQ(place->local_world, 4);
  EXPECT_EQ(place->master_address, "gpu03");
  EXPECT_GT(place->master_port, 1024);
  Variables other = kSlurm;
  other["SLURM_JOB_ID"] = "4712";
  EXPECT_NE(place_in(other)->token, place->token);
  EXPECT_NE(place_in(other)->master_port, place->master_port);
}

TEST(RankEnvironment, ABatchScriptOfSlurmIsNoRank) {
  Variables script = kSlurm;
  script.erase("SLURM_STEP_ID");
  EXPECT_FALSE(place_in(script));
}

TEST(RankEnvironment, ReadsOpenMpi) {
  const auto place = place_in(kOpenMpi);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->rank, 1);
  EXPECT_EQ(place->world, 2);
  EXPECT_EQ(place->master_address, "127.0.0.1");
  Variables two_machines = kOpenMpi;
  two_machines["OMPI_COMM_WORLD_LOCAL_SIZE"] = "1";
  EXPECT_EQ(place_in(two_machines)->master_address, "");
  two_machines["MASTER_ADDR"] = "gpu1";
  EXPECT_EQ(place_in(two_machines)->master_address, "gpu1");
}

TEST(RankEnvironment, RanksInsideASlurmAllocationOfOneTaskBelongToWhoStartedThem) {
  Variables both = kOpenMpi;
  both.insert({{"SLURM_STEP_ID", "0"}, {"SLURM_PROCID", "0"}, {"SLURM_STEP_NUM_TASKS", "1"}});
  const auto place = place_in(both);
  ASSERT_TRUE(place);
  EXPECT_EQ(place->source, "Open MPI");
}

TEST(RankEnvironment, NamesAVariableThatMakesNoSense) {
  const auto error_of = [](const Variables& variables) -> std::string {
    try {
      place_in(variables);
      return "";
    } catch (const Error& error) {
      EXPECT_EQ(error.code(), Code::kInvalidArgument);
      return error.what();
    }
  };
  EXPECT_THAT(error_of({{"RANK", "one"}, {"WORLD_SIZE", "2"}}),
              HasSubstr("expected RANK to be a number from 0 to"));
  EXPECT_THAT(error_of({{"RANK", "2"}, {"WORLD_SIZE", "2"}}), HasSubstr("rank 2 of 2"));
  EXPECT_THAT(error_of({{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"MASTER_PORT", "70000"}}),
              HasSubstr("MASTER_PORT"));
}

TEST(RankEnvironment, FindsTheFirstHostOfASlurmList) {
  EXPECT_EQ(first_host("gpu7"), "gpu7");
  EXPECT_EQ(first_host("a,b,c"), "a");
  EXPECT_EQ(first_host("gpu[07,9-12],login1"), "gpu07");
  EXPECT_EQ(first_host("gpu[12-14]"), "gpu12");
  EXPECT_EQ(first_host("rack[1-2]node[3,5]x,b"), "rack1node3x");
  EXPECT_EQ(first_host(""), "");
}

}  // namespace
}  // namespace zpp
