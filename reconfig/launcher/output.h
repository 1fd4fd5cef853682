// What the launcher writes to one of its own streams, in pieces that never block it: a reader that
// has stopped must not keep the launcher from seeing that a member has died. One thread.
#pragma once

#include <string>
#include <string_view>

namespace rewire {

class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}

  // A pipe that says it is writable takes so much without blocking.
  static constexpr size_t kPiece = 4096;
  // Above this the members' output is left in their pipes.
  static constexpr size_t kFull = 1u << 20;

  std::string* buffer() { return &buffer_; }
  void Add(std::string_view text) { buffer_.append(text); }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool pending() const { return !broken_ && written_ < buffer_.size(); }
  [[nodiscard]] bool full() const { return pending() && buffer_.size() - written_ > kFull; }
  // The reader has gone: nothing will be written any more.
  [[nodiscard]] bool broken() const { return broken_; }

  // Call when poll(2) says that fd() is writable.
  void WritePiece();

 private:
  int fd_;
  std::string buffer_;
  size_t written_ = 0;
  bool broken_ = false;
};

}  // namespace rewire
