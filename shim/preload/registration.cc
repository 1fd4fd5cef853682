#include "shim/preload/registration.h"

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

// Replaces a real value that another registration has. Odd, so never an address.
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
  return __atomic_load_n(&chunk[place.offset].value, __ATOMIC_ACQUIRE);
}

RealValues::Element* RealValues::Make(uint32_t index) {
  const Place place = PlaceOf(index, kFirst);
  if (place.chunk >= kChunks) return nullptr;
  Element* chunk = chunks_[place.chunk].load(std::memory_order_acquire);
  if (chunk == nullptr) {
    auto* fresh = new (std::nothrow) Element[size_t{kFirst} << place.chunk];
    if (fresh == nullptr) return nullptr;
    if (chunks_[place.chunk].compare_exchange_strong(chunk, fresh, std::memory_order_acq_rel)) {
      chunk = fresh;
    } else {
      delete[] fresh;
    }
  }
  return &chunk[place.offset];
}

bool RealValues::Set(uint32_t index, uint64_t value) {
  Element* element = Make(index);
  if (element == nullptr) return false;
  __atomic_store_n(&element->value, value, __ATOMIC_RELAXED);
  element->set.store(true, std::memory_order_release);
  return true;
}

uint64_t* RealValues::Reserve(uint32_t index) {
  return Set(index, 0) ? &Make(index)->value : nullptr;
}

uint64_t RegistrationList::Add(Registration registration) {
  MutexLock lock(&mutex_);
  return AddLocked(registration);
}

uint64_t RegistrationList::AddLocked(Registration registration) {
  for (const Registration& r : list_) {
    if (r.kind == registration.kind && r.handle == registration.handle) {
      registration.handle = OwnNumber(registration.index);
      break;
    }
  }
  list_.push_back(registration);
  return registration.handle;
}

void RegistrationList::AddLater(Registration registration, ncclWindow_t* window) {
  MutexLock lock(&mutex_);
  later_.push_back({registration, window});
  any_later_.store(true, std::memory_order_release);
}

void RegistrationList::TakeStored(const RealValues& values) {
  if (!any_later_.load(std::memory_order_acquire)) return;
  MutexLock lock(&mutex_);
  for (Later& later : later_) {
    later.registration.handle = values.Get(later.registration.index).value_or(0);
    if (later.registration.handle == 0) continue;
    *later.window = reinterpret_cast<ncclWindow_t>(AddLocked(later.registration));
  }
  later_.clear();
  any_later_.store(false, std::memory_order_release);
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
  later_.clear();
  any_later_.store(false, std::memory_order_relaxed);
  next_.store(0, std::memory_order_relaxed);
}

}  // namespace rewire::shim
