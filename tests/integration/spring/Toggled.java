import com.sun.net.httpserver.HttpExchange;
import com.sun.net.httpserver.HttpServer;
import java.io.IOException;
import java.net.InetAddress;
import java.net.InetSocketAddress;
import java.net.URI;
import java.net.http.HttpClient;
import java.net.http.HttpRequest;
import java.net.http.HttpResponse;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.time.Duration;
import java.util.*;
import java.util.concurrent.Executors;
import org.apache.kafka.clients.consumer.ConsumerRecord;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.EnableAutoConfiguration;
import org.springframework.context.annotation.Import;
import org.springframework.core.env.ConfigurableEnvironment;
import org.springframework.core.env.MapPropertySource;
import org.springframework.kafka.config.ConcurrentKafkaListenerContainerFactory;
import org.springframework.kafka.core.ConsumerFactory;
import org.springframework.kafka.core.KafkaTemplate;
import org.springframework.kafka.listener.BatchMessageListener;
import org.springframework.kafka.listener.ConcurrentMessageListenerContainer;
import org.springframework.stereotype.Component;
import tools.jackson.databind.JsonNode;
import tools.jackson.databind.json.JsonMapper;

/**
 * A producer or a consumer whose topic is a property, changed at run time as Spring Cloud's writable env endpoint and
 * its refresh do: {@code POST /actuator/env} sets the property, {@code POST /actuator/refresh} lets the application take
 * it. {@code POST /actuator/payments} stops and starts it, {@code GET} shows it. All but the refresh work as in Boot.
 */
@EnableAutoConfiguration
@Import(Toggled.Application.class)
public class Toggled {
    private static final String PROPERTY = "payments.topic";

    public static void main(String[] args) throws Exception {
        SpringApplication.run(Toggled.class, args).getBean(Application.class).serve();
    }

    /** What works on the topic. Asked to stop, it finishes the batch that it has begun. */
    private interface Work {
        void start(String topic) throws Exception;
        void askToStop();
        boolean ended();
    }

    @Component
    static class Application {
        private final JsonMapper json = JsonMapper.builder().build();
        private final ConfigurableEnvironment environment;
        private final Map<String, Object> changed = new HashMap<>();
        private final Work work;
        private final String password;
        private final int port;
        private String topic, state = "stopped";
        private boolean again;

        Application(ConfigurableEnvironment environment, KafkaTemplate<String, String> template,
                    ConsumerFactory<String, String> consumers, @Value("${app.role}") String role,
                    @Value("${app.folder}") String home, @Value("${app.port}") int port, @Value("${app.password}") String password,
                    @Value("${app.flags:}") String flags) throws Exception {
            this.environment = environment;
            this.port = port;
            this.password = password;
            environment.getPropertySources().addFirst(new MapPropertySource("changed", changed));
            if (!flags.isEmpty()) asked(flags).ifPresent(said -> changed.put(PROPERTY, said));
            topic = environment.getRequiredProperty(PROPERTY);
            Path folder = Path.of(home), seen = folder.resolve("seen");
            work = role.equals("producer") ? new Producing(template, folder, seen) : new Listening(consumers, seen);
            run(true);
        }

        /** What the flag service says; nothing where it does not answer: then the property of this process counts. */
        private static Optional<String> asked(String flags) {
            try {
                HttpRequest request = HttpRequest.newBuilder(URI.create(flags)).timeout(Duration.ofSeconds(2)).build();
                return Optional.of(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
            } catch (Exception e) {
                return Optional.empty();
            }
        }

        void serve() throws IOException {
            HttpServer server = HttpServer.create(new InetSocketAddress(InetAddress.getLoopbackAddress(), port), 0);
            server.setExecutor(Executors.newFixedThreadPool(4, task -> {
                Thread thread = new Thread(task);
                thread.setDaemon(true);
                return thread;
            }));
            server.createContext("/", exchange -> {
                int code;
                Object said = null;
                try {
                    code = allowed(exchange) ? 200 : 401;
                    if (code == 200) said = answer(exchange.getRequestMethod() + " " + exchange.getRequestURI().getPath(),
                        exchange.getRequestBody().readAllBytes());
                } catch (NoSuchElementException e) {
                    code = 404;
                } catch (IllegalArgumentException e) {
                    code = 400;
                } catch (Exception e) {
                    code = 500;
                }
                byte[] text = said == null ? new byte[0] : json.writeValueAsBytes(said);
                exchange.sendResponseHeaders(code, text.length == 0 ? -1 : text.length);
                if (text.length > 0) exchange.getResponseBody().write(text);
                exchange.close();
            });
            server.start();
        }

        private boolean allowed(HttpExchange exchange) {
            String word = Base64.getEncoder().encodeToString(("topicshift:" + password).getBytes(StandardCharsets.UTF_8));
            return ("Basic " + word).equals(exchange.getRequestHeaders().getFirst("Authorization"));
        }

        private synchronized Object answer(String what, byte[] body) throws Exception {
            if (state.equals("stopping") && work.ended()) {
                state = "stopped";
                if (again) run(true);
            }
            switch (what) {
                case "GET /actuator/payments" -> {
                    return Map.of("state", state, "topic", topic, "configured", environment.getRequiredProperty(PROPERTY));
                }
                case "POST /actuator/payments" -> {
                    JsonNode wanted = json.readTree(body).get("run");
                    if (wanted == null || !wanted.isBoolean()) throw new IllegalArgumentException("run");
                    run(wanted.booleanValue());
                }
                case "POST /actuator/env" -> {
                    JsonNode said = json.readTree(body);
                    changed.put(said.get("name").asString(), said.get("value").asString());
                }
                case "POST /actuator/refresh" -> {
                    String before = topic;
                    topic = environment.getRequiredProperty(PROPERTY);
                    return before.equals(topic) ? List.of() : List.of(PROPERTY);
                }
                default -> throw new NoSuchElementException(what);
            }
            return null;
        }

        private void run(boolean wanted) throws Exception {
            again = wanted && state.equals("stopping");
            if (wanted && state.equals("stopped")) {
                work.start(topic);
                state = "running";
            } else if (!wanted && state.equals("running")) {
                work.askToStop();
                state = "stopping";
            }
        }
    }

    private static void keep(Path seen, String line) throws IOException {
        Files.writeString(seen, line + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
    }

    /**
     * Writes some keys in turn, in batches, with a number for each, and keeps what was acknowledged. Asked to stop, it
     * writes the batch that it has begun, and one that waits.
     */
    private static class Producing implements Work {
        private static final int KEYS = 12, BATCH = 24;
        private final KafkaTemplate<String, String> template;
        private final Path folder, seen;
        private final int[] numbers = new int[KEYS];
        private volatile boolean wanted;
        private Thread thread = new Thread();

        Producing(KafkaTemplate<String, String> template, Path folder, Path seen) throws IOException {
            this.template = template;
            this.folder = folder;
            this.seen = seen;
            if (Files.exists(seen)) for (String line : Files.readAllLines(seen)) {
                String[] parts = line.split(",");
                numbers[Integer.parseInt(parts[0].substring(1))] = Integer.parseInt(parts[1]) + 1;
            }
        }

        @Override public void start(String topic) {
            wanted = true;
            thread = new Thread(() -> loop(topic), "producing");
            thread.start();
        }

        private void loop(String topic) {
            for (int waiting = 1; wanted || waiting-- > 0; ) {
                for (int n = 0; n < BATCH; n++) {
                    int key = n % KEYS;
                    try {
                        template.send(topic, "k" + key, String.valueOf(numbers[key])).get();
                        keep(seen, "k" + key + "," + numbers[key]++ + "," + topic);
                        Thread.sleep(10);
                    } catch (Exception e) {
                        try {
                            keep(folder.resolve("refused"), topic + "," + e.getCause());
                            Thread.sleep(100);
                        } catch (Exception ignored) {
                            return;
                        }
                        n = BATCH;
                    }
                }
            }
        }

        @Override public void askToStop() { wanted = false; }
        @Override public boolean ended() { return !thread.isAlive(); }
    }

    /** Keeps what it is given, a batch at a time. A stopped listener ends its batch, commits, and leaves the group. */
    private static class Listening implements Work {
        private final ConsumerFactory<String, String> consumers;
        private final Path seen;
        private ConcurrentMessageListenerContainer<String, String> listener;
        private volatile boolean ended = true;

        Listening(ConsumerFactory<String, String> consumers, Path seen) {
            this.consumers = consumers;
            this.seen = seen;
        }

        @Override public void start(String topic) {
            ConcurrentKafkaListenerContainerFactory<String, String> made = new ConcurrentKafkaListenerContainerFactory<>();
            made.setConsumerFactory(consumers);
            made.setBatchListener(true);
            listener = made.createContainer(topic);
            listener.getContainerProperties().setMessageListener((BatchMessageListener<String, String>) this::take);
            ended = false;
            listener.start();
        }

        private void take(List<ConsumerRecord<String, String>> records) {
            try {
                for (ConsumerRecord<String, String> record : records)
                    keep(seen, record.key() + "," + record.value() + "," + record.topic());
                Thread.sleep(200);
            } catch (Exception e) {
                throw new IllegalStateException(e);
            }
        }

        @Override public void askToStop() { listener.stop(() -> ended = true); }
        @Override public boolean ended() { return ended; }
    }
}
