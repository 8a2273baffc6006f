// zpp-data: text to tokens, and a look at token files.
#include <unistd.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>

#include "core/data/convert.h"
#include "core/data/inspect.h"
#include "core/data/tokenize.h"
#include "core/version.h"
#include "tools/program.h"

namespace {

const std::vector<std::string> kFormats = {"auto", "zpp", "llmc", "megatron", "raw_u16", "text"};

struct Tokenize {
  zpp::TokenizeOptions options;
  std::string separator;
};

struct Inspect {
  std::string path;
  zpp::InspectOptions options;
};

struct Convert {
  std::string input, output;
  zpp::ConvertOptions options;
};

void declare_tokenize(CLI::App& app, Tokenize& flags) {
  zpp::TokenizeOptions& o = flags.options;
  app.footer(
      "One token per byte and an end-of-text after each document. Documents are JSON lines, what "
      "the separator tells apart, or whole files. Held-out text is spread evenly: every n-th "
      "document, or every n-th block of about 16 KiB of text without documents.");
  app.add_option("inputs", o.inputs, "files of text or JSON lines; - is standard input")
      ->required();
  app.add_option("-o,--output", o.output, "token file to write")->required()->type_name("FILE");
  app.add_option("--val-output", o.val_output, "token file for held-out text")->type_name("FILE");
  app.add_option("--val-fraction", o.val_fraction, "share that is held out, 0 to 1");
  app.add_option("--format", o.text.format, "of the input; auto goes by .jsonl")
      ->check(CLI::IsMember({"auto", "text", "jsonl"}))
      ->capture_default_str();
  app.add_option("--text-key", o.text.text_key, "member of a JSON line that holds the text")
      ->capture_default_str();
  app.add_option("--document-separator", flags.separator,
                 "text between documents; \\n, \\t and \\xHH are understood");
}

void declare_input(CLI::App& app, zpp::TokenFileOptions& o) {
  app.add_option("--format", o.format, "of the token file")
      ->check(CLI::IsMember(kFormats))
      ->capture_default_str();
  app.add_option("--vocab", o.vocab, "all ids must be below; 0: what the file says")
      ->check(CLI::Range(int64_t{0}, zpp::kMaxVocab))
      ->capture_default_str();
  app.add_option("--eot", o.eot, "id that ends a document, where the file does not say");
}

void declare_inspect(CLI::App& app, Inspect& flags) {
  app.add_option("file", flags.path, "token file")->required();
  declare_input(app, flags.options.file);
  const CLI::Range natural(int64_t{0}, int64_t{1} << 40);
  app.add_option("--samples", flags.options.samples, "pieces to show")
      ->check(natural)
      ->capture_default_str();
  app.add_option("--sample-tokens", flags.options.sample_tokens, "tokens of each piece")
      ->check(natural)
      ->capture_default_str();
  app.add_option("--scan-tokens", flags.options.scan_tokens,
                 "tokens to read for ids and entropy, default all")
      ->check(natural);
}

void declare_convert(CLI::App& app, Convert& flags) {
  app.add_option("input", flags.input, "token file to read")->required();
  app.add_option("output", flags.output, "token file to write")->required();
  app.add_option("--to", flags.options.to, "format to write")
      ->check(CLI::IsMember({"zpp", "llmc"}))
      ->capture_default_str();
  app.add_option("--tokenizer", flags.options.tokenizer,
                 "name for the header, default the input's");
  declare_input(app, flags.options.from);
}

void run(Tokenize& flags) {
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  flags.options.text.separator = zpp::unescape(flags.separator);
  if (terminal)
    flags.options.on_progress = [](int64_t bytes) {
      std::cerr << "\r" << (bytes >> 20) << " MiB read" << std::flush;
    };
  const zpp::TokenizeReport report = zpp::tokenize(flags.options);
  if (terminal) std::cerr << "\r\033[K";
  const auto print = [](const std::filesystem::path& path, const zpp::TokenizeReport::Part& part) {
    std::cout << path.string() << ": " << part.tokens << " tokens, " << part.documents
              << " documents\n";
  };
  print(flags.options.output, report.train);
  if (!flags.options.val_output.empty()) print(flags.options.val_output, report.val);
}

void run(const Convert& flags) {
  const zpp::ConvertReport report = zpp::convert(flags.input, flags.output, flags.options);
  std::cout << flags.output << ": " << report.tokens << " tokens";
  if (report.documents_kept)
    std::cout << ", " << report.documents << " documents\n";
  else if (flags.options.to == "llmc")
    std::cout << "; llmc files cannot say where documents end unless it is with id 50256\n";
  else
    std::cout << "; the output does not say where documents end (--eot ID names the end-of-text)\n";
}

}  // namespace

int main(int argc, char** argv) {
  CLI::App app("Text to tokens, and a look at token files.", "zpp-data");
  app.footer("Exit status: 0 done, 1 failed while running, 2 bad input.");
  app.require_subcommand(1);
  app.set_version_flag("--version", zpp::version_text());
  Tokenize tokenize;
  Inspect inspect;
  Convert convert;
  CLI::App* tokenize_app = app.add_subcommand("tokenize", "raw text or JSON lines to a token file");
  CLI::App* inspect_app =
      app.add_subcommand("inspect", "facts, entropy and samples of a token file");
  CLI::App* convert_app = app.add_subcommand("convert", "a token file in another format");
  declare_tokenize(*tokenize_app, tokenize);
  declare_inspect(*inspect_app, inspect);
  declare_convert(*convert_app, convert);
  return zpp::run_program(app, argc, argv, [&] {
    if (tokenize_app->parsed()) run(tokenize);
    if (inspect_app->parsed()) std::cout << zpp::inspect(inspect.path, inspect.options);
    if (convert_app->parsed()) run(convert);
    return zpp::kExitDone;
  });
}
