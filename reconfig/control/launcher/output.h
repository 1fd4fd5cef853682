// The launcher writes one of its own streams in pieces and never blocks: a reader that has stopped
// must not keep the launcher from seeing that a member has died. Thread-compatible.
#pragma once

#include <string>
#include <string_view>
#include <utility>

namespace rewire::control {

class Output {
 public:
  explicit Output(int fd) : fd_(fd) {}

  // poll(2) guarantees that a writable pipe accepts this number of bytes without blocking.
  static constexpr size_t kPiece = 4096;
  // Above this number of unwritten bytes, the members' output stays in their pipes.
  static constexpr size_t kFull = 1u << 20;

  std::string* buffer() { return &buffer_; }
  void Add(std::string_view text) { buffer_.append(text); }
  [[nodiscard]] int fd() const { return fd_; }
  [[nodiscard]] bool pending() const { return !broken_ && written_ < buffer_.size(); }
  [[nodiscard]] bool full() const { return pending() && buffer_.size() - written_ > kFull; }
  // Returns true when the pipe's reader has closed; no more bytes are written then.
  [[nodiscard]] bool broken() const { return broken_; }
  // Returns the errno of the first failed write, once; otherwise 0. A full disk ends no job: output
  // that cannot be written is dropped, and later output is tried again.
  [[nodiscard]] int TakeError() { return std::exchange(error_, 0); }

  // Writes one piece. Call when poll(2) reports that fd() is writable.
  void WritePiece();

 private:
  void Drop(int error);

  int fd_;
  std::string buffer_;
  size_t written_ = 0;
  bool broken_ = false;
  bool reported_ = false;
  int error_ = 0;
};

}  // namespace rewire::control
