// Opens and makes files that hold keys, and files whose names other users can guess. These
// functions follow no link at the file's name and use only files that they have made or whose owner
// they have checked. No other user can therefore read or change a key, or redirect a write.
//
// Thread-safe. This file uses libc and libstdc++ only.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>

#include "reconfig/base/unique_fd.h"

namespace rewire {

struct [[nodiscard]] FileStatus {
  int error = 0;     // a value of errno; EPERM: the owner or the mode is refused
  std::string text;  // "PATH: reason"; empty when ok
  [[nodiscard]] bool ok() const { return error == 0; }
};

// Refuses an open file or folder of another user, and one whose mode has a bit of `forbidden`.
FileStatus CheckOwner(int fd, const std::string& path, mode_t forbidden);

// Refuses the folder of the file `path` if another user owns the folder or may write to it: that
// user could replace the file.
FileStatus CheckFolderOf(const std::string& path);

// Opens a regular file of this user that nobody else may access. With O_CREAT in `flags`, the call
// makes a missing file with mode 0600.
FileStatus OpenOwnFile(const std::string& path, int flags, UniqueFd* out);

// Makes an empty file. An existing file of this name is removed; a link is removed, not followed.
FileStatus MakeOwnFile(const std::string& path, mode_t mode, UniqueFd* out);

FileStatus WriteWhole(int fd, std::string_view bytes, const std::string& path);

}  // namespace rewire
