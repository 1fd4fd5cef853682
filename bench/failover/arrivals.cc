#include "bench/failover/arrivals.h"

#include <cstring>

#include "reconfig/base/hash.h"

namespace rewire::bench {
namespace {

constexpr size_t kWord = sizeof(uint64_t);

// Returns the word at byte `at` of message `number`. The first word is the number.
uint64_t WordOf(uint64_t number, size_t at) { return at == 0 ? number : MixWord(number, at); }

// Reads the word at byte `at` of a received message.
uint64_t WordAt(std::span<const char> message, size_t at) {
  uint64_t word = 0;
  std::memcpy(&word, message.data() + at, kWord);
  return word;
}

}  // namespace

void FillMessage(uint64_t number, std::span<char> message) {
  for (size_t at = 0; at + kWord <= message.size(); at += kWord) {
    const uint64_t word = WordOf(number, at);
    std::memcpy(message.data() + at, &word, kWord);
  }
}

void Arrivals::Add(std::span<const char> message) {
  const uint64_t number = message.size() < kWord ? next_ : WordAt(message, 0);
  bool whole = message.size() >= kWord;
  for (size_t at = kWord; whole && at + kWord <= message.size(); at += kWord) {
    whole = WordAt(message, at) == WordOf(number, at);
  }
  if (!whole) {
    ++corrupt_;
    ++next_;
  } else if (number < next_) {
    ++duplicated_;
  } else {
    GiveUp(number);  // counts the missing messages before this message as lost
    ++next_;
  }
}

void Arrivals::GiveUp(uint64_t end) {
  if (end <= next_) return;
  lost_ += end - next_;
  next_ = end;
}

}  // namespace rewire::bench
