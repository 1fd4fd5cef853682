#include "bench/trainer/args.h"

#include <CLI/CLI.hpp>
#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"

namespace rewire::trainer {
namespace {

// CLI::Range accepts a NaN.
CLI::Validator Within(double least, double most) {
  return CLI::Validator(
      [least, most](std::string& text) -> std::string {
        double value = 0;
        if (CLI::detail::lexical_cast(text, value) && value >= least && value <= most) return "";
        return absl::StrCat("Value ", text, " not in range ", least, " to ", most);
      },
      absl::StrCat("FLOAT in [", least, " - ", most, "]"));
}

CLI::Validator NotEmpty() {
  return CLI::Validator(
      [](std::string& text) -> std::string { return text.empty() ? "a file name is needed" : ""; },
      "FILE");
}

void AddOptions(CLI::App* app, Args* a) {
  app->add_option("--data", a->data, "text to train on (default: a licence text of the system)")
      ->check(NotEmpty());
  app->add_option("--steps", a->steps, "train until this many steps are done")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000}));
  app->add_option("--stop-after", a->stop_after, "stop when this step is done")
      ->check(CLI::Range(uint64_t{1}, uint64_t{1'000'000'000}));
  app->add_option("--stop-file", a->stop_file, "stop after the step in which this file appears")
      ->check(NotEmpty());
  app->add_option("--seed", a->seed, "of data, initial weights and dropout")
      ->check(CLI::Range(uint64_t{0}, uint64_t{~uint64_t{0} >> 1}));
  app->add_option("--zero", a->zero, "ZeRO stage: 1 shards the optimizer's state")
      ->check(CLI::Range(0, 1));
  app->add_flag("--exact", a->exact, "bit-equal results in every world");
  app->add_option("--batch", a->batch, "samples per micro-batch, over all members")
      ->check(CLI::Range(1, 1024));
  app->add_option("--accumulate", a->accumulate, "micro-batches per step")->check(CLI::Range(1, 4));
  app->add_option("--layers", a->model.layers, "blocks")->check(CLI::Range(1, 64));
  app->add_option("--width", a->model.width, "features, a multiple of --heads")
      ->check(CLI::Range(4, 2048));
  app->add_option("--heads", a->model.heads, "attention heads")->check(CLI::Range(1, 64));
  app->add_option("--context", a->model.context, "bytes per sample")->check(CLI::Range(2, 1024));
  app->add_flag("--untied-head", a->untied_head, "a head of its own, not the embedding's");
  app->add_option("--dropout", a->model.dropout, "probability")->check(Within(0, 0.9));
  app->add_option("--lr", a->schedule.rate, "peak learning rate")->check(Within(1e-9, 1));
  app->add_option("--warmup", a->schedule.warmup, "steps of linear warm-up")
      ->check(CLI::Range(1, 1'000'000));
  app->add_option("--decay", a->schedule.decay, "step at which the cosine ends")
      ->check(CLI::Range(1, 1'000'000'000));
  app->add_option("--clip", a->clip, "global gradient norm, 0 for none")->check(Within(0, 1e9));
  app->add_option("--weight-decay", a->weight_decay, "weight decay")->check(Within(0, 1));
  app->add_option("--state-mb", a->state_mb, "further optimizer state that every update changes")
      ->check(CLI::Range(0, 65536));
  app->add_option("--save", a->save, "write a checkpoint at the end, one file per member")
      ->check(NotEmpty());
  app->add_option("--load", a->load, "start from a checkpoint of any number of members")
      ->check(NotEmpty());
  app->add_option("--log", a->log, "JSON lines per step; {member} is replaced")->check(NotEmpty());
  app->add_option("--t0-ns", a->t0_ns, "monotonic time at which this process was asked for")
      ->check(CLI::Range(int64_t{1}, int64_t{INT64_MAX}));
  app->add_flag("--no-rewire", a->no_rewire, "ignore REWIRE_SOCKET");
  for (CLI::Option* option : app->get_options()) option->capture_default_str();
}

constexpr char kSummary[] =
    "Trains a small GPT over the NCCL API, one process per RANK of WORLD_SIZE.";

}  // namespace

std::string Usage() {
  Args defaults;
  CLI::App app(kSummary, "gpt_train");
  AddOptions(&app, &defaults);
  return app.help();
}

absl::StatusOr<Args> ParseArgs(std::span<const std::string> arguments) {
  Args args;
  CLI::App app(kSummary, "gpt_train");
  AddOptions(&app, &args);
  try {
    app.parse(std::vector<std::string>(arguments.rbegin(), arguments.rend()));
  } catch (const CLI::CallForHelp&) {
    args.help = true;
    return args;
  } catch (const CLI::ParseError& e) {
    return absl::InvalidArgumentError(e.what());
  }
  args.model.tied = !args.untied_head;
  if (args.model.width % args.model.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--width ", args.model.width, " must be a multiple of --heads ", args.model.heads));
  }
  return args;
}

}  // namespace rewire::trainer
