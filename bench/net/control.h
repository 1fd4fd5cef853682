// The control connection between a benchmark's two processes: messages and a barrier. A broken
// connection ends the process: the other has failed and reported its error. Thread-compatible.
#pragma once

#include <cstddef>

namespace rewire::bench {

class Control {
 public:
  Control(int fd, bool leads) : fd_(fd), leads_(leads) {}
  [[nodiscard]] bool leads() const { return leads_; }
  void Send(const void* bytes, size_t size) const;
  void Receive(void* bytes, size_t size) const;
  void Meet() const;  // returns on both sides after both have called

 private:
  const int fd_;
  const bool leads_;
};

}  // namespace rewire::bench
