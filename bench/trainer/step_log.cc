#include "bench/trainer/step_log.h"

#include <fcntl.h>
#include <time.h>

#include <bit>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <iterator>
#include <sstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace rewire::trainer {
namespace {

int64_t Clock(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<int64_t>(t.tv_sec) * 1'000'000'000 + t.tv_nsec;
}

}  // namespace

int64_t MonotonicNs() { return Clock(CLOCK_MONOTONIC); }
int64_t ThreadCpuNs() { return Clock(CLOCK_THREAD_CPUTIME_ID); }

int64_t ProcessStartNs() {
  std::ifstream file("/proc/self/stat");
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  // The name in parentheses may contain anything; the start time is the 20th field after the name.
  const size_t name_end = text.rfind(')');
  if (name_end == std::string::npos) return MonotonicNs();
  std::istringstream fields(text.substr(name_end + 1));
  std::string field;
  for (int i = 0; i < 20; ++i) fields >> field;
  const int64_t since_boot =
      std::strtoll(field.c_str(), nullptr, 10) * (1'000'000'000 / sysconf(_SC_CLK_TCK));
  return since_boot - (Clock(CLOCK_BOOTTIME) - MonotonicNs());
}

std::string LossBits(double loss) {
  return absl::StrFormat("%016x", std::bit_cast<uint64_t>(loss));
}

absl::Status StepLog::Open(std::string path, uint32_t member) {
  member_ = member;
  const std::string mark = "{member}";
  if (const size_t at = path.find(mark); at != std::string::npos) {
    path.replace(at, mark.size(), std::to_string(member));
  }
  file_.reset(open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0644));
  if (!file_.valid()) {
    return absl::InvalidArgumentError(absl::StrCat("--log ", path, ": ", strerror(errno)));
  }
  for (const auto& [name, ns] : waiting_) Phase(name, ns);
  waiting_.clear();
  return absl::OkStatus();
}

void StepLog::Phase(std::string_view name, int64_t wall_ns) {
  if (!file_.valid()) {
    waiting_.emplace_back(name, wall_ns);
    return;
  }
  Write(absl::StrFormat("{\"kind\":\"phase\",\"member\":%u,\"phase\":\"%s\",\"wall_ns\":%d}\n",
                        member_, std::string(name), wall_ns));
}

void StepLog::Step(const StepRow& r) {
  if (!file_.valid()) return;
  // JSON has no number for a loss that is not finite.
  const std::string loss = r.loss - r.loss == 0 ? absl::StrFormat("%.9g", r.loss) : "null";
  Write(absl::StrFormat(
      "{\"kind\":\"step\",\"step\":%u,\"loss\":%s,\"bits\":\"%s\",\"wall_ns\":%d,\"step_ns\":%d,"
      "\"cpu_ns\":%d,\"slots\":%d,\"slot\":%d,\"epoch\":%u,\"member\":%u,\"outcome\":\"%s\","
      "\"repeats\":%u,\"pause_ns\":%u,\"bytes_in\":%u,\"bytes_out\":%u}\n",
      r.step, loss, LossBits(r.loss), MonotonicNs(), r.step_ns, r.cpu_ns, r.slots, r.slot, r.epoch,
      member_, std::string(r.outcome), r.repeats, r.pause_ns, r.bytes_in, r.bytes_out));
}

void StepLog::Event(std::string_view kind, uint64_t step, uint64_t epoch, uint64_t pause_ns) {
  if (!file_.valid()) return;
  Write(
      absl::StrFormat("{\"kind\":\"%s\",\"step\":%u,\"wall_ns\":%d,\"epoch\":%u,\"member\":%u,"
                      "\"pause_ns\":%u}\n",
                      std::string(kind), step, MonotonicNs(), epoch, member_, pause_ns));
}

void StepLog::Write(const std::string& line) {
  // A full disk must not end the training: this row and all later rows are lost.
  if (write(file_.get(), line.data(), line.size()) < 0) file_.reset();
}

}  // namespace rewire::trainer
