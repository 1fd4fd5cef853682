// Between the two processes of a benchmark: what has to be told, and starting together. A broken
// end ends the process: the other one has failed and said why.
#pragma once

#include <cstddef>

namespace rewire::bench {

class Control {
 public:
  Control(int fd, bool leads) : fd_(fd), leads_(leads) {}
  [[nodiscard]] bool leads() const { return leads_; }
  void Send(const void* bytes, size_t size) const;
  void Receive(void* bytes, size_t size) const;
  void Meet() const;  // returns on both sides when both have come

 private:
  const int fd_;
  const bool leads_;
};

}  // namespace rewire::bench
