#include "reconfig/moe/exec/round.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"

namespace rewire::moe {
namespace {

constexpr uint32_t kMaxLayer = 1 << 16;

}  // namespace

void Round::Begin(const RoundInput& next, bool backward) {
  input = next;
  offsets.assign(input.tokens.size(), 0);
  for (size_t e = 1; e < offsets.size(); ++e) offsets[e] = offsets[e - 1] + input.tokens[e - 1];
  key = (key / 2 + 1) * 2 + (backward ? 1 : 0);
}

absl::Status Check(const RoundInput& input, const Moved* moved, const Round& last,
                   const Shape& shape, uint32_t rank) {
  const auto wrong = [](const auto&... why) {
    return absl::InvalidArgumentError(absl::StrCat("input of a round: ", why...));
  };
  if (input.tokens.size() != shape.experts || input.weights.size() != shape.experts) {
    return wrong("counts=", input.tokens.size(), " weights=", input.weights.size(),
                 ": must each be ", shape.experts, " (experts)");
  }
  for (uint32_t e = 0; e < shape.experts; ++e) {
    uint64_t bytes = 0;
    for (const WeightPart& part : input.weights[e]) bytes += part.bytes;
    if (bytes != shape.weight_bytes) {
      return wrong("weights of expert ", e, ": bytes=", bytes, ": must be ", shape.weight_bytes);
    }
    if (input.tokens[e] >= 1U << 31) {
      return wrong("expert ", e, ": tokens=", input.tokens[e], ": must be below 2^31");
    }
  }
  if (input.layer > kMaxLayer) return wrong("layer=", input.layer, ": must be 0 to ", kMaxLayer);
  if (last.key != 0 && input.stream != last.input.stream) {
    return wrong("stream: must be the stream of the first round");
  }
  if (moved == nullptr) return absl::OkStatus();
  if (shape.grad_bytes == 0) return wrong("backward: grad_bytes=0: must be at least 1");
  if (input.errors == 0) return wrong("backward: errors=NULL: must be set");
  if (moved->dynamic.size() != shape.experts) {
    return wrong("backward: the moves are not of a forward round");
  }
  if (moved->layer != input.layer) {
    return wrong("backward: layer=", input.layer, ": must be ", moved->layer,
                 ", as in the forward round");
  }
  for (const PlacedMove& s : moved->given) {
    const uint32_t expert = s.move.expert - rank * shape.experts;
    if (expert < shape.experts && s.move.first + s.move.tokens <= input.tokens[expert]) continue;
    return wrong("backward: expert ", expert,
                 ": the moves are of another forward round, with more tokens");
  }
  return absl::OkStatus();
}

void RoundRows::Begin(const Round& round, const std::vector<uint8_t>& dynamic) {
  dynamic_ = dynamic;
  const std::vector<uint32_t>& tokens = round.input.tokens;
  uint64_t rows = 0;
  for (uint32_t e = 0; e < shape_.experts; ++e) rows += dynamic_[e] == 0 ? tokens[e] : 0;
  static_rows_ = 0;
  statics_.clear();
  own_.clear();
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    if (dynamic_[e] != 0 || tokens[e] == 0) continue;
    const bool at_once = static_rows_ * kAtOnce < rows;
    (at_once ? statics_ : own_).push_back(OwnSegment(round, e, 0, tokens[e]));
    if (at_once) static_rows_ += tokens[e];
  }
}

Segment RoundRows::OwnSegment(const Round& round, uint32_t expert, uint32_t first,
                              uint32_t rows) const {
  Segment segment;
  segment.expert = rank_ * shape_.experts + expert;
  segment.first = first;
  segment.rows = rows;
  const uint64_t offset = (round.offsets[expert] + first) * shape_.token_bytes;
  segment.x = round.input.x + offset;
  segment.errors = round.input.errors == 0 ? 0 : round.input.errors + offset;
  segment.out = round.input.out + offset;
  return segment;
}

void RoundRows::Close(const Round& round, std::span<const Give> gives) {
  for (uint32_t e = 0; e < shape_.experts; ++e) {
    if (dynamic_[e] != 0) AddKept(round, e, gives);
  }
}

void RoundRows::AddKept(const Round& round, uint32_t expert, std::span<const Give> gives) {
  const uint32_t number = rank_ * shape_.experts + expert;
  std::vector<std::pair<Move, bool>> apart;  // with: whether a helper computes the rows now
  for (const Give& give : gives) {
    if (give.placed.move.expert == number) {
      apart.emplace_back(give.placed.move, give.state == Give::kGiven);
    }
  }
  std::sort(apart.begin(), apart.end(),
            [](const auto& a, const auto& b) { return a.first.first < b.first.first; });
  uint32_t next = 0;
  const auto keep_until = [&](uint32_t end) {
    if (end > next) own_.push_back(OwnSegment(round, expert, next, end - next));
  };
  for (const auto& [move, given] : apart) {
    if (!given && !round.backward()) continue;
    keep_until(move.first);
    next = move.first + move.tokens;
    if (given) continue;
    own_.push_back(OwnSegment(round, expert, move.first, move.tokens));
    own_.back().recompute = true;
  }
  keep_until(round.input.tokens[expert]);
}

void RoundRows::Order(const Round& round, std::span<const PlacedMove> received,
                      const std::vector<PlacedMove>& planned, bool stay, const Speeds& speeds) {
  std::vector<uint32_t> own_rows;
  for (const Segment& s : own_) own_rows.push_back(s.rows);
  const std::vector<uint64_t> due = Arrivals(planned, shape_, speeds, round.backward(), stay);
  std::vector<Arrival> arrivals;
  for (uint32_t i = 0; i < received.size(); ++i) {
    Arrival arrival{UINT64_MAX, received[i].move.tokens, i};  // if nothing has been measured yet
    const auto plan = std::find(planned.begin(), planned.end(), received[i]);
    if (speeds.kib != 0 && plan != planned.end()) arrival.at = due[plan - planned.begin()];
    arrivals.push_back(arrival);
  }
  const uint64_t row = (round.backward() ? 2 : 1) * uint64_t{speeds.row};
  turns_ = TakeTurns(static_rows_, own_rows, std::move(arrivals), row);
  turn_ = 0;
}

std::optional<uint32_t> RoundRows::LastReceived() const {
  if (turn_ == 0 || !turns_[turn_ - 1].received) return std::nullopt;
  return turns_[turn_ - 1].index;
}

std::optional<uint32_t> RoundRows::TakeReceived() {
  if (done() || !turns_[turn_].received) return std::nullopt;
  return turns_[turn_++].index;
}

std::vector<Segment> RoundRows::TakeOwn() {
  std::vector<Segment> segments;
  for (; !done() && !turns_[turn_].received; ++turn_) {
    segments.push_back(own_[turns_[turn_].index]);
  }
  return segments;
}

}  // namespace rewire::moe
