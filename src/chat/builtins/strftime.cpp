// See strftime.h.
#include "chat/builtins/strftime.h"

#include <time.h>

#include <array>
#include <string_view>

#include "assay/error.h"

namespace assay::chat {

namespace {

constexpr std::array<std::string_view, 7> kDays = {"Sunday",   "Monday", "Tuesday", "Wednesday",
                                                   "Thursday", "Friday", "Saturday"};
constexpr std::array<std::string_view, 12> kMonths = {"January",   "February", "March",    "April",
                                                      "May",       "June",     "July",     "August",
                                                      "September", "October",  "November", "December"};

std::string padded(int64_t number, int width, char fill = '0') {
  std::string digits = std::to_string(number);
  if (static_cast<int>(digits.size()) < width) digits.insert(0, static_cast<size_t>(width) - digits.size(), fill);
  return digits;
}

// ISO 8601: the week that holds the year's first Thursday is week 1.
std::pair<int, int> iso_week(const tm& t) {
  const int weekday = (t.tm_wday + 6) % 7;
  int year = t.tm_year + 1900;
  int week = (t.tm_yday - weekday + 10) / 7;
  const auto weeks_of = [](int y) {
    const auto dec31 = [](int z) { return (z + z / 4 - z / 100 + z / 400) % 7; };
    return dec31(y) == 4 || dec31(y - 1) == 3 ? 53 : 52;
  };
  if (week < 1)
    week = weeks_of(--year);
  else if (week > weeks_of(year)) {
    week = 1;
    ++year;
  }
  return {year, week};
}

std::string offset(const tm& t) {
  const int64_t minutes = t.tm_gmtoff / 60;
  const int64_t size = minutes < 0 ? -minutes : minutes;
  return (minutes < 0 ? "-" : "+") + padded(size / 60, 2) + padded(size % 60, 2);
}

std::string directive(char c, const tm& t, int64_t unix);

std::string several(std::string_view directives, std::string_view between, const tm& t, int64_t unix) {
  std::string out;
  for (const char c : directives) out += (out.empty() ? "" : std::string(between)) + directive(c, t, unix);
  return out;
}

std::string directive(char c, const tm& t, int64_t unix) {
  const auto day = static_cast<size_t>(t.tm_wday), month = static_cast<size_t>(t.tm_mon);
  const int hour12 = t.tm_hour % 12 == 0 ? 12 : t.tm_hour % 12;
  switch (c) {
    case 'a': return std::string(kDays[day].substr(0, 3));
    case 'A': return std::string(kDays[day]);
    case 'b':
    case 'h': return std::string(kMonths[month].substr(0, 3));
    case 'B': return std::string(kMonths[month]);
    case 'c':
      return directive('a', t, unix) + " " + directive('b', t, unix) + " " + directive('e', t, unix) + " " +
             directive('T', t, unix) + " " + directive('Y', t, unix);
    case 'C': return padded((t.tm_year + 1900) / 100, 2);
    case 'd': return padded(t.tm_mday, 2);
    case 'D':
    case 'x': return several("mdy", "/", t, unix);
    case 'e': return padded(t.tm_mday, 2, ' ');
    case 'f': return "000000";
    case 'F': return several("Ymd", "-", t, unix);
    case 'G': return padded(iso_week(t).first, 4);
    case 'g': return padded(iso_week(t).first % 100, 2);
    case 'H': return padded(t.tm_hour, 2);
    case 'I': return padded(hour12, 2);
    case 'j': return padded(t.tm_yday + 1, 3);
    case 'k': return padded(t.tm_hour, 2, ' ');
    case 'l': return padded(hour12, 2, ' ');
    case 'm': return padded(t.tm_mon + 1, 2);
    case 'M': return padded(t.tm_min, 2);
    case 'n': return "\n";
    case 'p': return t.tm_hour < 12 ? "AM" : "PM";
    case 'P': return t.tm_hour < 12 ? "am" : "pm";
    case 'r': return several("IMS", ":", t, unix) + " " + directive('p', t, unix);
    case 'R': return several("HM", ":", t, unix);
    case 's': return std::to_string(unix);
    case 'S': return padded(t.tm_sec, 2);
    case 't': return "\t";
    case 'T':
    case 'X': return several("HMS", ":", t, unix);
    case 'u': return std::to_string(t.tm_wday == 0 ? 7 : t.tm_wday);
    case 'U': return padded((t.tm_yday + 7 - t.tm_wday) / 7, 2);
    case 'V': return padded(iso_week(t).second, 2);
    case 'w': return std::to_string(t.tm_wday);
    case 'W': return padded((t.tm_yday + 7 - (t.tm_wday + 6) % 7) / 7, 2);
    case 'y': return padded((t.tm_year + 1900) % 100, 2);
    case 'Y': return std::to_string(t.tm_year + 1900);
    case 'z':
    case 'Z': return c == 'z' ? offset(t) : t.tm_zone ? t.tm_zone : "";
    case '%': return "%";
    default: throw Error(Errc::unsupported, std::string("strftime_now: the directive %") + c + " is not supported");
  }
}

}  // namespace

std::string format_time(const std::string& format, std::optional<int64_t> unix) {
  const time_t seconds = unix ? static_cast<time_t>(*unix) : time(nullptr);
  tm t{};
  if (!localtime_r(&seconds, &t)) throw Error(Errc::bad_request, "strftime_now: no such time");
  std::string out;
  for (size_t i = 0; i < format.size(); ++i) {
    if (format[i] != '%' || i + 1 == format.size()) {
      out.push_back(format[i]);
      continue;
    }
    const bool bare = format[i + 1] == '-' && i + 2 < format.size();  // %-d: without padding
    i += bare ? 2 : 1;
    std::string text = directive(format[i], t, seconds);
    if (bare) {
      const size_t first = text.find_first_not_of("0 ");
      text = first == std::string::npos ? "0" : text.substr(first);
    }
    out += text;
  }
  return out;
}

}  // namespace assay::chat
