# The commands that one types all day. Everything else is in .ci/run.
.PHONY: build test race lint fuzz docs demo bench ci soak release

build: ## the program, as ./turnpike
	CGO_ENABLED=0 go build -trimpath -tags grpcnotrace -o turnpike ./cmd/turnpike

test: ## what everybody runs
	go test ./...

race: ## the tests as CI runs them
	bash .ci/tests

lint: ## golangci-lint, as tools/go.mod pins it
	go build -C tools -o ../coverage/golangci-lint github.com/golangci/golangci-lint/v2/cmd/golangci-lint
	./coverage/golangci-lint run

fuzz: ## look for new inputs, a minute for each target
	bash .ci/fuzz 60s

docs: ## write the generated part of the documentation again
	go test ./docs -run Configuration -update

demo: ## the first minute
	go run ./cmd/turnpike demo

bench: ## the performance table
	go run ./bench

ci: ## everything that must be true of a commit
	bash .ci/run

soak: ## all of what CI samples, an hour or more: make soak PART="tests mutations"
	bash .ci/soak $(PART)

release: ## the archives of a release, in dist: make release VERSION=v1.2.3
	go run ./internal/release $(VERSION)
