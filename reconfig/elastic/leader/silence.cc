#include "reconfig/elastic/leader/silence.h"

#include <algorithm>

namespace rewire::elastic {

Silence::Silence(Duration heartbeat, Duration longest)
    : longest_(longest), vouches_(std::min(2 * heartbeat, longest / 2)) {}

void Silence::Start(Time now) { counted_ = spoke_ = now; }

void Silence::Count(Time now) {
  const Time until = std::min(now, spoke_ + vouches_);
  if (until > counted_) speaking_ += until - counted_;
  counted_ = now;
}

Duration Silence::Heard(Time now, MemberId member, bool of_world) {
  Count(now);
  voices_[member] = {now, speaking_};
  if (!of_world) return {};
  const Duration gap = now - spoke_;
  spoke_ = now;
  if (gap <= longest_ / 2) return {};
  // This member is the first to speak again: the others get their full time.
  for (auto& [id, voice] : voices_) voice.at = speaking_;
  return gap;
}

void Silence::Starved(Time now, MemberId member, Duration waited) {
  Count(now);
  const auto voice = voices_.find(member);
  if (voice == voices_.end()) return;
  voice->second.at = std::min(voice->second.at + waited, speaking_);
}

Silence::Voice Silence::VoiceOf(MemberId member) const {
  const auto voice = voices_.find(member);
  return voice == voices_.end() ? Voice{} : voice->second;
}

Duration Silence::Of(MemberId member) const { return speaking_ - VoiceOf(member).at; }

std::optional<Time> Silence::Due(MemberId member) const {
  if (TooLong(member)) return std::nullopt;
  return counted_ + (longest_ - Of(member));
}

Duration Silence::Since(Time now, MemberId member) const { return now - VoiceOf(member).heard; }

}  // namespace rewire::elastic
