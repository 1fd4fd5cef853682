#include "bench/trainer/args.h"

#include <charconv>
#include <cmath>
#include <set>
#include <variant>
#include <vector>

#include "absl/strings/str_cat.h"

namespace rewire::trainer {
namespace {

template <typename T>
struct Range {
  T* target;
  T least;
  T most;
};

struct Option {
  const char* name;
  const char* value;  // the value's name in the usage text; nullptr: a switch
  const char* text;
  std::variant<std::string*, bool*, Range<int>, Range<uint64_t>, Range<int64_t>, Range<double>>
      target;
};

std::vector<Option> Options(Args& a) {
  using U = Range<uint64_t>;
  using I = Range<int>;
  using D = Range<double>;
  return {
      {"--data", "FILE", "text to train on (default: a licence text of the system)", &a.data},
      {"--steps", "N", "train until this many steps are done (100)", U{&a.steps, 1, 1'000'000'000}},
      {"--stop-after", "STEP", "stop when this step is done", U{&a.stop_after, 1, 1'000'000'000}},
      {"--stop-file", "FILE", "stop after the step in which this file appears", &a.stop_file},
      {"--seed", "N", "of data, initial weights and dropout (1)", U{&a.seed, 0, ~uint64_t{0} >> 1}},
      {"--zero", "0|1", "ZeRO stage: 1 shards the optimizer's state (0)", I{&a.zero, 0, 1}},
      {"--exact", nullptr, "bit-equal results in every world", &a.exact},
      {"--batch", "N", "samples per micro-batch, over all members (8)", I{&a.batch, 1, 1024}},
      {"--accumulate", "N", "micro-batches per step (1)", I{&a.accumulate, 1, 4}},
      {"--layers", "N", "blocks (2)", I{&a.model.layers, 1, 64}},
      {"--width", "N", "features, a multiple of --heads (128)", I{&a.model.width, 4, 2048}},
      {"--heads", "N", "attention heads (4)", I{&a.model.heads, 1, 64}},
      {"--context", "N", "bytes per sample (64)", I{&a.model.context, 2, 1024}},
      {"--untied-head", nullptr, "a head of its own, not the embedding's", &a.untied_head},
      {"--dropout", "P", "probability (0.1)", D{&a.model.dropout, 0, 0.9}},
      {"--lr", "RATE", "peak learning rate (0.003)", D{&a.schedule.rate, 1e-9, 1}},
      {"--warmup", "N", "steps of linear warm-up (20)", I{&a.schedule.warmup, 1, 1'000'000}},
      {"--decay", "N", "step at which the cosine ends (2000)",
       I{&a.schedule.decay, 1, 1'000'000'000}},
      {"--clip", "NORM", "global gradient norm, 0 for none (1)", D{&a.clip, 0, 1e9}},
      {"--weight-decay", "X", "(0.1)", D{&a.weight_decay, 0, 1}},
      {"--state-mb", "MB", "further optimizer state that every update changes (0)",
       I{&a.state_mb, 0, 65536}},
      {"--save", "FILE", "write a checkpoint at the end, one file per member", &a.save},
      {"--load", "FILE", "start from a checkpoint of any number of members", &a.load},
      {"--log", "FILE", "JSON lines per step; {member} is replaced", &a.log},
      {"--t0-ns", "NS", "monotonic time at which this process was asked for",
       Range<int64_t>{&a.t0_ns, 1, INT64_MAX}},
      {"--no-rewire", nullptr, "ignore REWIRE_SOCKET", &a.no_rewire},
      {"--help", nullptr, "this text", &a.help},
  };
}

template <typename T>
absl::Status Parse(const std::string& name, const std::string& text, Range<T> range) {
  T value{};
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data(), end, value);
  // A NaN compares false with both ends.
  if (parsed.ec != std::errc() || parsed.ptr != end ||
      !(value >= range.least && value <= range.most)) {
    return absl::InvalidArgumentError(
        absl::StrCat(name, " '", text, "' must be ", range.least, "..", range.most));
  }
  *range.target = value;
  return absl::OkStatus();
}

absl::Status Set(const Option& o, const std::string& text) {
  if (const auto* s = std::get_if<std::string*>(&o.target)) {
    if (text.empty()) {
      return absl::InvalidArgumentError(absl::StrCat(o.name, " needs a file name"));
    }
    **s = text;
    return absl::OkStatus();
  }
  if (const auto* r = std::get_if<Range<int>>(&o.target)) return Parse(o.name, text, *r);
  if (const auto* r = std::get_if<Range<uint64_t>>(&o.target)) return Parse(o.name, text, *r);
  if (const auto* r = std::get_if<Range<int64_t>>(&o.target)) return Parse(o.name, text, *r);
  return Parse(o.name, text, std::get<Range<double>>(o.target));
}

}  // namespace

std::string Usage() {
  Args defaults;
  std::string out =
      "usage: gpt_train [OPTION]...\n"
      "Trains a small GPT over the NCCL API, one process per RANK of WORLD_SIZE.\n\n";
  for (const Option& o : Options(defaults)) {
    std::string left = absl::StrCat("  ", o.name, o.value != nullptr ? " " : "",
                                    o.value != nullptr ? o.value : "");
    left.resize(std::max<size_t>(left.size() + 1, 22), ' ');
    absl::StrAppend(&out, left, o.text, "\n");
  }
  return out;
}

absl::StatusOr<Args> ParseArgs(std::span<const std::string> arguments) {
  Args args;
  const std::vector<Option> options = Options(args);
  std::set<std::string> seen;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const size_t equals = arguments[i].find('=');
    const std::string name = arguments[i].substr(0, equals);
    const Option* found = nullptr;
    for (const Option& o : options) {
      if (name == o.name) found = &o;
    }
    if (found == nullptr) {
      return absl::InvalidArgumentError(absl::StrCat("unknown argument '", arguments[i], "'"));
    }
    if (!seen.insert(name).second) {
      return absl::InvalidArgumentError(absl::StrCat(name, " is given twice"));
    }
    if (bool* const* on = std::get_if<bool*>(&found->target)) {
      if (equals != std::string::npos) {
        return absl::InvalidArgumentError(absl::StrCat(name, " takes no value"));
      }
      **on = true;
      continue;
    }
    std::string value;
    if (equals != std::string::npos) {
      value = arguments[i].substr(equals + 1);
    } else if (++i < arguments.size()) {
      value = arguments[i];
    } else {
      return absl::InvalidArgumentError(absl::StrCat(name, " needs a value"));
    }
    if (const absl::Status s = Set(*found, value); !s.ok()) return s;
  }
  args.model.tied = !args.untied_head;
  if (args.model.width % args.model.heads != 0) {
    return absl::InvalidArgumentError(absl::StrCat(
        "--width ", args.model.width, " must be a multiple of --heads ", args.model.heads));
  }
  return args;
}

}  // namespace rewire::trainer
