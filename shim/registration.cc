#include "shim/registration.h"

#include <algorithm>
#include <bit>
#include <new>

namespace rewire::shim {

namespace {

// Element i lies in chunk c at offset i - kFirst * (2^c - 1).
struct Place {
  uint32_t chunk;
  uint32_t offset;
};
Place PlaceOf(uint32_t index, uint32_t first) {
  const uint32_t scaled = index / first + 1;
  const auto chunk = static_cast<uint32_t>(std::bit_width(scaled)) - 1;
  return {chunk, index - first * ((1U << chunk) - 1)};
}

// Handed out in place of a real value that another registration has; odd, so no address.
uint64_t OwnNumber(uint32_t index) { return (uint64_t{index} << 1) | 1; }

}  // namespace

RealValues::~RealValues() {
  for (auto& chunk : chunks_) delete[] chunk.load(std::memory_order_relaxed);
}

std::optional<uint64_t> RealValues::Get(uint32_t index) const {
  const Place place = PlaceOf(index, kFirst);
  if (place.chunk >= kChunks) return std::nullopt;
  const Element* chunk = chunks_[place.chunk].load(std::memory_order_acquire);
  if (chunk == nullptr || !chunk[place.offset].set.load(std::memory_order_acquire)) {
    return std::nullopt;
  }
  return chunk[place.offset].value.load(std::memory_order_relaxed);
}

bool RealValues::Set(uint32_t index, uint64_t value) {
  const Place place = PlaceOf(index, kFirst);
  if (place.chunk >= kChunks) return false;
  Element* chunk = chunks_[place.chunk].load(std::memory_order_acquire);
  if (chunk == nullptr) {
    auto* fresh = new (std::nothrow) Element[size_t{kFirst} << place.chunk];
    if (fresh == nullptr) return false;
    if (chunks_[place.chunk].compare_exchange_strong(chunk, fresh, std::memory_order_acq_rel)) {
      chunk = fresh;
    } else {
      delete[] fresh;
    }
  }
  chunk[place.offset].value.store(value, std::memory_order_relaxed);
  chunk[place.offset].set.store(true, std::memory_order_release);
  return true;
}

uint64_t RegistrationList::Add(Registration registration) {
  MutexLock lock(&mutex_);
  for (const Registration& r : list_) {
    if (r.kind == registration.kind && r.handle == registration.handle) {
      registration.handle = OwnNumber(registration.index);
      break;
    }
  }
  list_.push_back(registration);
  return registration.handle;
}

std::optional<Registration> RegistrationList::Find(RegistrationKind kind, uint64_t handle) const {
  MutexLock lock(&mutex_);
  for (const Registration& r : list_) {
    if (r.kind == kind && r.handle == handle) return r;
  }
  return std::nullopt;
}

bool RegistrationList::Remove(RegistrationKind kind, uint64_t handle) {
  MutexLock lock(&mutex_);
  const auto it = std::find_if(list_.begin(), list_.end(), [&](const Registration& r) {
    return r.kind == kind && r.handle == handle;
  });
  if (it == list_.end()) return false;
  list_.erase(it);
  return true;
}

std::vector<Registration> RegistrationList::All() const {
  MutexLock lock(&mutex_);
  return list_;
}

void RegistrationList::Clear() {
  MutexLock lock(&mutex_);
  list_.clear();
  next_.store(0, std::memory_order_relaxed);
}

}  // namespace rewire::shim
