// The file by which our own libraries and programs open librewire.so: its SONAME, so that a process
// that opens it in several ways has one copy of it. A wheel has no file of another name.
#pragma once

namespace rewire {

inline constexpr char kCoreFile[] = "librewire.so.0.1";

}  // namespace rewire
