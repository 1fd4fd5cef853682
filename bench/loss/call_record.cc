#include "bench/loss/call_record.h"

#include <time.h>

#include <nlohmann/json.hpp>
#include <utility>

namespace rewire::bench {
namespace {

constexpr int64_t kNanoseconds = 1000000000;

std::string NameOfPlace(CallKind kind, bool blocking) {
  return std::string(NameOf(kind)) + (blocking ? "" : " (non-blocking)");
}

}  // namespace

const char* NameOf(CallKind kind) {
  constexpr const char* kNames[] = {"compute",   "rendezvous",  "init",  "split",
                                    "operation", "synchronize", "query", "idle poll",
                                    "finalize",  "destroy"};
  return kNames[static_cast<size_t>(kind)];
}

int64_t MonotonicNow() {
  timespec now{};
  ::clock_gettime(CLOCK_MONOTONIC, &now);
  return now.tv_sec * kNanoseconds + now.tv_nsec;
}

void CallRecord::Leave(int64_t now) {
  const int64_t fault = page_->FaultAt();
  if (left_ != 0 || fault == 0 || fault > now) return;
  at_fault_ = now_;
  left_ = now;
}

void CallRecord::Enter(CallKind kind, bool blocking) {
  const int64_t now = MonotonicNow();
  Leave(now);
  now_ = {kind, blocking, now};
}

void CallRecord::End(std::string error) {
  ended_ = MonotonicNow();
  Leave(ended_);
  last_ = now_;
  error_ = std::move(error);
}

std::string CallRecord::Text() const {
  const nlohmann::json text = {
      {"at_fault", left_ == 0 ? "" : NameOfPlace(at_fault_.kind, at_fault_.blocking)},
      {"at_fault_since_ns", at_fault_.since},
      {"left_ns", left_},
      {"last", NameOfPlace(last_.kind, last_.blocking)},
      {"last_since_ns", last_.since},
      {"ended_ns", ended_},
      {"cleaned_ns", cleaned_},
      {"error", error_}};
  return text.dump();
}

}  // namespace rewire::bench
