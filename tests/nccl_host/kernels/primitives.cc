#include "tests/nccl_host/kernels/primitives.h"

#include <algorithm>
#include <cstring>

#include "tests/nccl_host/kernels/lines.h"

namespace nccl_host {

Primitives::Primitives(const Communicator& communicator, const Channel& channel, Progress* progress,
                       const Elements& elements, const Shape& shape, char* input, char* output)
    : progress_(progress),
      elements_(elements),
      protocol_(shape.protocol),
      slices_(shape.chunk_steps / shape.slice_steps),
      slice_steps_(shape.slice_steps),
      simple_slot_(communicator.buffer_sizes[kSimple] / kSteps),
      ll_slot_(communicator.buffer_sizes[kLL] / kSteps),
      ll128_slot_(communicator.buffer_sizes[kLL128] / kSteps),
      input_(input),
      output_(output) {
  const auto round = static_cast<uint64_t>(protocol_ == kSimple ? shape.chunk_steps : 1);
  for (const int peer : shape.from) {
    if (peer < 0) continue;
    from_.emplace_back(&channel.peers[peer]->receive[0], round);
    if (protocol_ == kSimple) from_.back().PostHead();  // the steps skipped by rounding
  }
  for (const int peer : shape.to) {
    if (peer >= 0) to_.emplace_back(&channel.peers[peer]->send[0], round);
  }
}

Primitives::~Primitives() {
  for (ConnectionEnd& end : from_) end.Keep();
  for (ConnectionEnd& end : to_) end.Keep();
}

void Primitives::Run(Step step, int64_t count) {
  count = std::max<int64_t>(count, 0);
  switch (protocol_) {
    case kSimple:
      RunSimple(step, count);
      break;
    case kLL:
      RunLL(step, count);
      break;
    case kLL128:
      RunLL128(step, count);
      break;
  }
  if (step.send) Progress::LetProxySend();
}

void Primitives::Move(const Step& step, const std::vector<const char*>& sources,
                      const std::vector<char*>& targets, int64_t elements) {
  if (elements == 0 || sources.empty() || progress_->aborted()) return;
  const auto count = static_cast<size_t>(elements);
  const size_t bytes = Bytes(elements);
  const char* result = sources.front();
  const bool pre = step.input && elements_.has_pre();
  const bool post = step.last && elements_.has_post();
  if (sources.size() > 1 || pre || post) {
    combined_.resize(std::max(combined_.size(), bytes));
    std::memcpy(combined_.data(), sources.front(), bytes);
    if (pre) elements_.Pre(combined_.data(), count);
    for (size_t i = 1; i < sources.size(); ++i) {
      elements_.Combine(combined_.data(), sources[i], count);
    }
    if (post) elements_.Post(combined_.data(), count);
    result = combined_.data();
  }
  for (char* const target : targets) {
    if (target != result) std::memmove(target, result, bytes);
  }
}

void Primitives::WaitForFreeSlots(uint64_t steps) {
  for (ConnectionEnd& end : to_) {
    progress_->Until([&] { return end.IsFree(steps); });
  }
}

// A chunk is sent in slices of some slots. A slice without data is announced as empty.
void Primitives::RunSimple(const Step& step, int64_t count) {
  const auto steps = static_cast<uint64_t>(slice_steps_);
  const int64_t full = simple_slot_ / static_cast<int64_t>(elements_.bytes()) * slice_steps_;
  const int64_t row = int64_t{16} * slices_;
  const int64_t even = (count + row - 1) / row * 16;
  const int64_t slice = std::max(even, full / 32);
  int64_t at = 0;
  for (int k = 0; k < slices_; ++k) {
    const int64_t n = std::min(slice, count - at);
    std::vector<const char*> sources;
    std::vector<char*> targets;
    if (step.source != nullptr) sources.push_back(step.source + Bytes(step.from + at));
    if (step.target != nullptr) targets.push_back(step.target + Bytes(step.to + at));
    if (step.receive) {
      for (ConnectionEnd& end : from_) {
        progress_->Until([&] { return end.IsFilled(steps); });
        if (!progress_->aborted()) sources.push_back(end.Slot(kSimple, 0));
      }
    }
    if (step.send) {
      WaitForFreeSlots(steps);
      for (ConnectionEnd& end : to_) {
        end.Announce(static_cast<int64_t>(Bytes(n)));
        targets.push_back(end.Slot(kSimple, 0));
      }
    }
    if (progress_->aborted()) return;
    Move(step, sources, targets, n);
    if (step.receive) {
      for (ConnectionEnd& end : from_) {
        end.Advance(steps);
        end.PostHead();
      }
    }
    if (step.send) {
      for (ConnectionEnd& end : to_) {
        end.Advance(steps);
        end.PostTail();
      }
    }
    at += n;
  }
}

void Primitives::RunLL(const Step& step, int64_t count) {
  const size_t lines = (Bytes(count) + kLLData - 1) / kLLData;
  const auto slot = static_cast<size_t>(ll_slot_);
  const auto cleans = [](const ConnectionEnd& end) {
    return (end.step() & kLLCleaning) == kLLCleaning;
  };
  if (step.send) {
    WaitForFreeSlots(1);
    for (ConnectionEnd& end : to_) {
      end.Announce(static_cast<int64_t>(cleans(end) ? slot : lines * sizeof(LLLine)));
    }
  }
  std::vector<std::vector<uint64_t>> received;
  std::vector<const char*> sources;
  if (step.source != nullptr) sources.push_back(step.source + Bytes(step.from));
  if (step.receive) {
    for (ConnectionEnd& end : from_) {
      progress_->Until([&] { return end.IsDelivered(); });
      std::vector<uint64_t>& words = received.emplace_back(lines);
      const auto* const line = reinterpret_cast<const LLLine*>(end.Slot(kLL, slot));
      for (size_t i = 0; i < lines && !progress_->aborted(); ++i) {
        progress_->Until([&] { return ReadLine(line + i, LLFlag(end.step()), &words[i]); });
      }
    }
    for (const auto& words : received)
      sources.push_back(reinterpret_cast<const char*>(words.data()));
  }
  if (progress_->aborted()) return;
  std::vector<uint64_t> result(lines);
  Move(step, sources, {reinterpret_cast<char*>(result.data())}, count);
  if (step.send) {
    for (ConnectionEnd& end : to_) {
      auto* const line = reinterpret_cast<LLLine*>(end.Slot(kLL, slot));
      const uint32_t flag = LLFlag(end.step());
      for (size_t i = 0; i < lines; ++i) WriteLine(line + i, result[i], flag);
      for (size_t i = lines; cleans(end) && i < slot / sizeof(LLLine); ++i) {
        WriteLine(line + i, 0, flag);
      }
    }
  }
  if (step.target != nullptr) {
    std::memcpy(step.target + Bytes(step.to), result.data(), Bytes(count));
  }
  if (step.receive) {
    for (ConnectionEnd& end : from_) {
      end.Advance(1);
      end.PostHead();
    }
  }
  if (step.send) {
    for (ConnectionEnd& end : to_) end.Advance(1);
  }
}

void Primitives::RunLL128(const Step& step, int64_t count) {
  const size_t slice_data = kLL128Data * kLL128Slice;
  const size_t lines = (Bytes(count) + slice_data - 1) / slice_data * kLL128Slice;
  const auto slot = static_cast<size_t>(ll128_slot_);
  if (step.send) {
    WaitForFreeSlots(1);
    for (ConnectionEnd& end : to_) end.Announce(static_cast<int64_t>(lines * kLL128Line));
  }
  std::vector<std::vector<char>> received;
  std::vector<const char*> sources;
  if (step.source != nullptr) sources.push_back(step.source + Bytes(step.from));
  if (step.receive) {
    for (ConnectionEnd& end : from_) {
      progress_->Until([&] { return end.IsDelivered(); });
      std::vector<char>& data = received.emplace_back(lines * kLL128Data);
      const char* const line = end.Slot(kLL128, slot);
      for (size_t i = 0; i < lines && !progress_->aborted(); ++i) {
        progress_->Until([&] {
          return ReadLine128(line + i * kLL128Line, end.step(), data.data() + i * kLL128Data);
        });
      }
    }
    for (const auto& data : received) sources.push_back(data.data());
  }
  if (progress_->aborted()) return;
  std::vector<char> result(lines * kLL128Data);
  Move(step, sources, {result.data()}, count);
  if (step.send) {
    for (ConnectionEnd& end : to_) {
      char* const line = end.Slot(kLL128, slot);
      for (size_t i = 0; i < lines; ++i) {
        WriteLine128(line + i * kLL128Line, result.data() + i * kLL128Data, end.step());
      }
    }
  }
  if (step.target != nullptr) {
    std::memcpy(step.target + Bytes(step.to), result.data(), Bytes(count));
  }
  if (step.send) {
    for (ConnectionEnd& end : to_) {
      end.Advance(1);
      if (end.has_proxy()) end.PostTail();
    }
  }
  if (step.receive) {
    for (ConnectionEnd& end : from_) {
      end.Advance(1);
      end.PostHead();
    }
  }
}

}  // namespace nccl_host
