// The way of a member's output: ForwardedPipe reads what one child writes, LinePrefix puts a prefix
// before each line, and Output writes one of the launcher's own streams. Output writes in pieces
// and never blocks: a reader that has stopped must not keep the launcher from seeing that a member
// has died. Thread-compatible; the launcher's thread owns the objects.
#pragma once

#include <string>
#include <string_view>
#include <utility>

#include "absl/status/statusor.h"
#include "reconfig/base/unique_fd.h"

namespace rewire::control {

// One of the launcher's own streams.
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

// Splits a stream of bytes into lines and puts a prefix before each.
class LinePrefix {
 public:
  explicit LinePrefix(std::string prefix) : prefix_(std::move(prefix)) {}

  // Appends the lines that `bytes` completes to *out. Breaks a line after kLongest bytes, so that a
  // stream without line ends needs no more memory.
  void Take(std::string_view bytes, std::string* out);
  // Appends the last line with a line end, if the stream ended without one.
  void End(std::string* out);

  static constexpr size_t kLongest = 1u << 20;

 private:
  const std::string prefix_;
  std::string partial_;
};

// The output of one child, which arrives through a pipe and goes to an Output.
class ForwardedPipe {
 public:
  // Makes the pipe, close-on-exec at both ends; `*child` is the end that the child writes. `to`
  // must outlive the object.
  static absl::StatusOr<ForwardedPipe> Make(std::string prefix, Output* to, UniqueFd* child);

  [[nodiscard]] int fd() const { return fd_.get(); }
  // Returns whether to poll fd() for input: the stream has not ended, and its output is not full.
  [[nodiscard]] bool wanted() const { return fd_.valid() && !to_->full(); }
  // Forwards what one read returns.
  void Read() { (void)ReadOnce(); }
  // Forwards what is in the pipe, and closes the pipe.
  void ReadToTheEnd();

 private:
  ForwardedPipe(UniqueFd fd, std::string prefix, Output* to)
      : fd_(std::move(fd)), lines_(std::move(prefix)), to_(to) {}
  // Returns false when the pipe is empty or at its end.
  bool ReadOnce();
  void Close();

  UniqueFd fd_;
  LinePrefix lines_;
  Output* to_;
};

}  // namespace rewire::control
