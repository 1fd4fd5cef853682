# Build rules for every target of the project: warnings, sanitizers, and one function per kind of
# target.

# rewire_options: how everything is compiled. rewire_flags: the same for tests and benchmarks, which
# may include everything.
add_library(rewire_options INTERFACE)
add_library(rewire_flags INTERFACE)
target_link_libraries(rewire_flags INTERFACE rewire_options)
target_include_directories(rewire_flags INTERFACE ${CMAKE_SOURCE_DIR} ${CMAKE_SOURCE_DIR}/reconfig/include
                           ${CMAKE_BINARY_DIR}/generated)
include(rooms)
include(embed)
target_compile_options(rewire_options INTERFACE -Wall -Wextra)
target_compile_options(rewire_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wnon-virtual-dtor>)
if(CMAKE_CXX_COMPILER_ID MATCHES "Clang")
  target_compile_options(rewire_options INTERFACE $<$<COMPILE_LANGUAGE:CXX>:-Wthread-safety>)
endif()
if(REWIRE_SANITIZE)
  # The standard library also checks for an empty optional and an index out of bounds.
  target_compile_definitions(rewire_options INTERFACE _GLIBCXX_ASSERTIONS)
  target_compile_options(rewire_options INTERFACE -fsanitize=${REWIRE_SANITIZE}
                         -fno-omit-frame-pointer -fno-sanitize-recover=all)
  target_link_options(rewire_options INTERFACE -fsanitize=${REWIRE_SANITIZE})
endif()

if(REWIRE_BUILD_TESTS OR REWIRE_SANITIZE)
  target_compile_definitions(rewire_options INTERFACE REWIRE_DCHECKS)  # check.h
endif()

# Test programs run for moments, so their own code is not optimised, and several files are compiled as
# one: most of the time goes into templates that they share. A sanitizer needs optimised code.
if(NOT REWIRE_SANITIZE)
  set(REWIRE_TEST_OPTIONS -O0)
endif()

# Most of the time of a build goes into the same headers. They are compiled once for libraries and once
# for tests, whose flags differ, and the files of a test or of the command are compiled several as one.
# The clang preset leaves this out, so that a missing #include is found.
option(REWIRE_PRECOMPILE "Compile common headers once, and small files together" ON)
if(REWIRE_PRECOMPILE)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    # With <string> precompiled, GCC 12 takes moves of short strings for accesses out of bounds.
    target_compile_options(rewire_options INTERFACE -Wno-array-bounds -Wno-stringop-overflow
                           -Wno-stringop-overread)
  endif()
  file(CONFIGURE OUTPUT precompiled.cc CONTENT "// no code\n")
  set(headers <algorithm> <array> <atomic> <chrono> <cstdint> <functional> <map> <memory> <optional>
      <set> <span> <string> <string_view> <thread> <vector>
      <absl/status/status.h> <absl/status/statusor.h> <absl/strings/str_cat.h>)
  add_library(rewire_precompiled OBJECT ${CMAKE_BINARY_DIR}/precompiled.cc)
  target_link_libraries(rewire_precompiled PRIVATE rewire_options absl::status absl::statusor absl::strings)
  target_precompile_headers(rewire_precompiled PRIVATE ${headers})
  if(REWIRE_BUILD_TESTS)
    # A program, because its code is -fPIE as that of tests is.
    file(CONFIGURE OUTPUT precompiled_test.cc CONTENT "int main() {}\n")
    add_executable(rewire_precompiled_test ${CMAKE_BINARY_DIR}/precompiled_test.cc)
    target_link_libraries(rewire_precompiled_test PRIVATE rewire_flags GTest::gtest GTest::gmock
                          absl::status absl::statusor absl::strings)
    target_compile_options(rewire_precompiled_test PRIVATE ${REWIRE_TEST_OPTIONS})
    target_precompile_headers(rewire_precompiled_test PRIVATE ${headers} <gmock/gmock.h> <gtest/gtest.h>)
  endif()
endif()

# rewire_library(NAME [DEPS lib...]): a static library of every .cc file in the current directory, with
# the include paths of its room.
function(rewire_library name)
  cmake_parse_arguments(ARG "" "" "DEPS" ${ARGN})
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*.cc)
  if(sources)
    add_library(${name} STATIC ${sources})
    target_link_libraries(${name} PUBLIC rewire_options ${ARG_DEPS})
    rewire_room_of(${name})
    if(REWIRE_PRECOMPILE)
      target_precompile_headers(${name} REUSE_FROM rewire_precompiled)
    endif()
  else()
    add_library(${name} INTERFACE)
    target_link_libraries(${name} INTERFACE rewire_options ${ARG_DEPS})
  endif()
endfunction()

# rewire_add_test(NAME COMMAND [ARGUMENT...]): a ctest test that a sanitizer's report fails.
function(rewire_add_test name)
  if(REWIRE_SANITIZE)
    add_test(NAME ${name} COMMAND ${Python3_EXECUTABLE} ${CMAKE_SOURCE_DIR}/cmake/sanitized.py
             ${CMAKE_BINARY_DIR}/sanitized/${name} ${ARGN})
  else()
    add_test(NAME ${name} COMMAND ${ARGN})
  endif()
endfunction()

# Everything that `ctest -L unit` runs.
add_custom_target(unit_tests)

# rewire_test(NAME [DEPS lib...] [LABELS label...] [TIMEOUT s]): one GoogleTest program of every
# *_test.cc file in the current directory. Every test has a deadline. Tests of tests/unit and tests/sim
# have the label `unit`.
function(rewire_test name)
  cmake_parse_arguments(ARG "" "TIMEOUT" "DEPS;LABELS;ENVIRONMENT" ${ARGN})
  if(NOT ARG_TIMEOUT)
    set(ARG_TIMEOUT 180)
  endif()
  if(REWIRE_SANITIZE)
    math(EXPR ARG_TIMEOUT "${ARG_TIMEOUT} * 4")
  endif()
  file(GLOB sources CONFIGURE_DEPENDS ${CMAKE_CURRENT_SOURCE_DIR}/*_test.cc)
  if(NOT sources)
    return()
  endif()
  add_executable(${name} ${sources})
  target_link_libraries(${name} PRIVATE rewire_flags GTest::gtest GTest::gmock GTest::gtest_main
                        ${ARG_DEPS})
  target_compile_options(${name} PRIVATE ${REWIRE_TEST_OPTIONS})
  if(REWIRE_PRECOMPILE)
    set_target_properties(${name} PROPERTIES UNITY_BUILD ON UNITY_BUILD_BATCH_SIZE 5)
    target_precompile_headers(${name} REUSE_FROM rewire_precompiled_test)
  endif()
  cmake_path(RELATIVE_PATH CMAKE_CURRENT_SOURCE_DIR BASE_DIRECTORY ${CMAKE_SOURCE_DIR} OUTPUT_VARIABLE folder)
  if(folder MATCHES "^tests/(unit|sim)(/|$)")
    list(APPEND ARG_LABELS unit)
    add_dependencies(unit_tests ${name})
  endif()
  rewire_add_test(${name} $<TARGET_FILE:${name}>)
  set_tests_properties(${name} PROPERTIES TIMEOUT ${ARG_TIMEOUT} LABELS "${ARG_LABELS}"
                       ENVIRONMENT "${ARG_ENVIRONMENT}")
endfunction()
