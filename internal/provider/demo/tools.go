package demo

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

type report struct {
	city    string
	celsius float64
	sky     string
}

// reports is the whole world as get_weather knows it.
func reports() []report {
	return []report{
		{"Berlin", 17, "cloudy"},
		{"Cairo", 34, "clear"},
		{"Lagos", 29, "thunderstorms"},
		{"Lisbon", 24, "sunny"},
		{"London", 15, "light rain"},
		{"Mumbai", 31, "humid"},
		{"New York", 19, "windy"},
		{"Paris", 18, "partly cloudy"},
		{"Reykjavik", 6, "drizzle"},
		{"São Paulo", 22, "showers"},
		{"Sydney", 21, "sunny"},
		{"Tokyo", 20, "clear"},
	}
}

func weather(city string) (string, error) {
	known := make([]string, 0, len(reports()))
	for _, r := range reports() {
		if strings.EqualFold(r.city, strings.TrimSpace(city)) {
			return fmt.Sprintf("%s: %s degrees Celsius, %s (example data, not a forecast)", r.city, degrees(r.celsius), r.sky), nil
		}
		known = append(known, r.city)
	}
	return "", fmt.Errorf("no example data for %q; known cities: %s", city, strings.Join(known, ", "))
}

// convert computes by way of Kelvin.
func convert(value float64, from, to string) (string, error) {
	source, ok := scale(from)
	target, known := scale(to)
	if !ok || !known {
		return "", fmt.Errorf("unknown unit; want celsius, fahrenheit or kelvin")
	}
	kelvin := (value + source.offset) / source.perKelvin
	if kelvin < 0 {
		return "", fmt.Errorf("%s %s is below absolute zero", degrees(value), source.symbol)
	}
	return fmt.Sprintf("%s %s = %s %s", degrees(value), source.symbol, degrees(kelvin*target.perKelvin-target.offset), target.symbol), nil
}

// unit is a temperature scale: kelvin = (value + offset) / perKelvin.
type unit struct {
	symbol            string
	offset, perKelvin float64
}

func scale(name string) (unit, bool) {
	switch name {
	case "celsius":
		return unit{"°C", 273.15, 1}, true
	case "fahrenheit":
		return unit{"°F", 459.67, 1.8}, true
	case "kelvin":
		return unit{"K", 0, 1}, true
	}
	return unit{}, false
}

// degrees writes a temperature with at most two decimals.
func degrees(t float64) string {
	return strconv.FormatFloat(math.Round(t*100)/100, 'f', -1, 64)
}
