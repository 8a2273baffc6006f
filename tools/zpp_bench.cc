// zpp-bench: how fast this machine runs what training consists of.
#include <CLI/CLI.hpp>
#include <cstdio>
#include <iostream>
#include <map>

#include "comm/ucx_transport.h"
#include "core/version.h"
#include "tools/bench/comm_bench.h"
#include "tools/bench/gemm_bench.h"
#include "tools/bench/kernel_bench.h"
#include "tools/bench/train_bench.h"
#include "tools/program.h"

namespace {

const std::map<std::string, zpp::DType> kDtypes = {{"f32", zpp::DType::kF32},
                                                   {"bf16", zpp::DType::kBF16}};

/// --dtype f32,bf16
void declare_dtypes(CLI::App& app, std::vector<zpp::DType>& dtypes) {
  app.add_option("--dtype", "f32, bf16 or both, comma between them")
      ->expected(1, 2)
      ->delimiter(',')
      ->type_name("TEXT")
      ->check(CLI::IsMember({"f32", "bf16"}))
      ->default_str("f32,bf16")
      ->each([&dtypes, first = true](const std::string& name) mutable {
        if (first) dtypes.clear();
        first = false;
        dtypes.push_back(kDtypes.at(name));
      });
}

void print_line(const std::string& line) {
  std::cout << line << std::endl;  // each line when it is measured
}

void declare_gemm(CLI::App& app, zpp::GemmBench& options) {
  CLI::App* gemm = app.add_subcommand("gemm", "Rates of the matrix products of a GPT's layers");
  gemm->add_option("--threads", options.threads, "threads; 0: all cores")->capture_default_str();
  gemm->add_option("--width", options.widths, "widths of the model")
      ->delimiter(',')
      ->capture_default_str();
  gemm->add_option("--tokens", options.tokens, "tokens of a micro-batch")
      ->delimiter(',')
      ->capture_default_str();
  gemm->add_option("--vocab", options.vocab, "rows of the head; 0 leaves it out")
      ->capture_default_str();
  declare_dtypes(*gemm, options.dtypes);
  gemm->add_option("--seconds", options.seconds, "time for each product")->capture_default_str();
  gemm->callback([&options] { zpp::bench_gemm(options, print_line); });
}

void declare_kernels(CLI::App& app, zpp::KernelBench& options) {
  CLI::App* kernels =
      app.add_subcommand("kernels", "Times and bandwidths of all other kernels, against memcpy");
  kernels->add_option("--threads", options.threads, "threads; 0: all cores")->capture_default_str();
  kernels->add_option("--rows", options.rows, "tokens of a micro-batch")->capture_default_str();
  kernels->add_option("--width", options.width, "width of the model")->capture_default_str();
  kernels->add_option("--vocab", options.vocab, "size of the vocabulary")->capture_default_str();
  kernels->add_option("--context", options.context, "tokens of a sequence")->capture_default_str();
  kernels->add_option("--heads", options.heads, "attention heads")->capture_default_str();
  declare_dtypes(*kernels, options.dtypes);
  kernels->add_option("--seconds", options.seconds, "time for each kernel")->capture_default_str();
  kernels->callback([&options] { zpp::bench_kernels(options, print_line); });
}

void declare_train(CLI::App& app, zpp::TrainBench& options) {
  CLI::App* train =
      app.add_subcommand("train", "Tokens per second of a configuration, on random tokens");
  train->add_option("--config", options.config_file, "JSON file; data files are not read")
      ->type_name("FILE")
      ->required();
  train
      ->add_option("--set", options.overrides,
                   "path.key=value, replaces one value; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  train->add_option("--steps", options.steps, "steps to time")->capture_default_str();
  train->add_option("--warmup", options.warmup_steps, "steps before them")->capture_default_str();
  train->add_flag("--profile", options.profile,
                  "split a step by kernel family, with the share of the limit of each");
  train->callback([&options] { zpp::bench_train(options, print_line); });
}

void declare_comm(CLI::App& app, zpp::CommBench& options) {
  CLI::App* comm = app.add_subcommand(
      "comm", "Collectives between ranks on this machine, against the transport's own rates");
  comm->add_option("--ranks", options.ranks, "ranks")->capture_default_str();
  comm->add_option("--nodes", options.nodes, "nodes that they pretend to be on")
      ->capture_default_str();
  comm->add_option("--bytes", options.bytes, "sizes of a buffer, 64K,1M,64M")
      ->delimiter(',')
      ->transform(CLI::AsSizeValue(false))
      ->default_str("64K,1M,64M");
  comm->add_option("--transport", options.transport,
                   "local (threads), ucx (processes) or ucx-tcp (processes, no shared memory)")
      ->check(CLI::IsMember({"local", "ucx", "ucx-tcp"}))
      ->capture_default_str();
  comm->add_option("--interfaces", options.interfaces, "network interfaces, \"eth0,mlx5_0:1\"");
  comm->add_option("--algorithm", options.algorithm,
                   "direct, ring, two-level or tree instead of the cheapest");
  comm->add_flag("--quantized", options.quantized,
                 "gathers and sums with coded messages: rates, errors and bytes, against 16 bits");
  comm->add_option("--seconds", options.seconds, "time for each collective and size")
      ->capture_default_str();
  comm->callback([&options] { zpp::bench_comm(options, print_line); });
}

}  // namespace

int main(int argc, char** argv) {
  zpp::quiet_ucx();
  CLI::App app("Measures how fast this machine runs what training consists of.", "zpp-bench");
  app.footer("Exit status: 0 done, 1 failed while running, 2 bad input.");
  app.set_version_flag("--version", zpp::version_text());
  app.require_subcommand(1);
  zpp::GemmBench gemm;
  zpp::KernelBench kernels;
  zpp::TrainBench train;
  zpp::CommBench comm;
  declare_gemm(app, gemm);
  declare_kernels(app, kernels);
  declare_train(app, train);
  declare_comm(app, comm);
  return zpp::run_program(app, argc, argv, [] { return zpp::kExitDone; });
}
