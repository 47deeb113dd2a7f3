import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.nio.file.Files;
import java.nio.file.Path;
import java.nio.file.StandardOpenOption;
import java.util.ArrayList;
import java.util.Collection;
import java.util.HashMap;
import java.util.List;
import java.util.Map;
import org.apache.kafka.clients.producer.RecordMetadata;
import org.apache.kafka.common.config.ConfigDef;
import org.apache.kafka.connect.connector.Task;
import org.apache.kafka.connect.data.Schema;
import org.apache.kafka.connect.errors.ConnectException;
import org.apache.kafka.connect.errors.RetriableException;
import org.apache.kafka.connect.sink.SinkConnector;
import org.apache.kafka.connect.sink.SinkRecord;
import org.apache.kafka.connect.sink.SinkTask;
import org.apache.kafka.connect.source.SourceConnector;
import org.apache.kafka.connect.source.SourceRecord;
import org.apache.kafka.connect.source.SourceTask;

/** A source that counts, and a sink that keeps what it was given, each in the file that its setting {@code file} names. */
public final class Kept {
    private Kept() {}

    static final ConfigDef FILE =
            new ConfigDef().define("file", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "What was seen is kept here");

    static void append(Path file, String key, Object value, String topic) {
        try {
            Files.writeString(
                    file, key + "," + value + "," + topic + "\n", StandardOpenOption.CREATE, StandardOpenOption.APPEND);
        } catch (IOException e) {
            throw new ConnectException(e);
        }
    }

    static List<Map<String, String>> oneTask(Map<String, String> settings, int most) {
        List<Map<String, String>> tasks = new ArrayList<>();
        for (int i = 0; i < most; i++) {
            tasks.add(settings);
        }
        return tasks;
    }

    /**
     * Appends each record. {@code highest}: keeps the highest offset of each key, as a search index with external
     * versions does, and drops what comes with a lower one. While FILE.hold is there nothing is taken; FILE.fail fails
     * its task, FILE.broken the connector itself when it starts, and while FILE.slow is there its task does not end.
     */
    public static final class Sink extends SinkConnector {
        private Map<String, String> settings;

        @Override
        public void start(Map<String, String> props) {
            if (Files.exists(Path.of(props.get("file") + ".broken"))) {
                throw new ConnectException("it cannot start");
            }
            settings = props;
        }

        @Override
        public Class<? extends Task> taskClass() {
            return SinkTaskOfKept.class;
        }

        @Override
        public List<Map<String, String>> taskConfigs(int most) {
            return oneTask(settings, most);
        }

        @Override
        public void stop() {}

        @Override
        public ConfigDef config() {
            return new ConfigDef(FILE)
                    .define("highest", ConfigDef.Type.BOOLEAN, false, ConfigDef.Importance.LOW, "Offsets as versions");
        }

        @Override
        public String version() {
            return "1";
        }
    }

    public static final class SinkTaskOfKept extends SinkTask {
        private static final Map<String, Map<String, Long>> STORES = new HashMap<>();
        private Path file;
        private boolean highest;

        @Override
        public void start(Map<String, String> props) {
            file = Path.of(props.get("file"));
            highest = Boolean.parseBoolean(props.get("highest"));
        }

        @Override
        public void put(Collection<SinkRecord> records) {
            if (Files.exists(Path.of(file + ".hold"))) {
                throw new RetriableException("held");
            }
            if (Files.exists(Path.of(file + ".fail"))) {
                throw new ConnectException("the password is hush");
            }
            for (SinkRecord r : records) {
                String key = new String((byte[]) r.key(), StandardCharsets.UTF_8);
                if (highest) {
                    synchronized (STORES) {
                        Map<String, Long> versions = STORES.computeIfAbsent(file.toString(), f -> new HashMap<>());
                        Long stored = versions.get(key);
                        if (stored != null && stored >= r.kafkaOffset()) {
                            continue;
                        }
                        versions.put(key, r.kafkaOffset());
                    }
                }
                append(file, key, new String((byte[]) r.value(), StandardCharsets.UTF_8), r.topic());
            }
        }

        @Override
        public void stop() {
            try {
                for (int i = 0; i < 400 && Files.exists(Path.of(file + ".slow")); i++) {
                    Thread.sleep(50);
                }
            } catch (InterruptedException e) {
                Thread.currentThread().interrupt();
            }
        }

        @Override
        public String version() {
            return "1";
        }
    }

    /** Writes twelve keys in turn to {@code topic}, each with a number that grows by one; keeps what was acknowledged. */
    public static final class Source extends SourceConnector {
        private Map<String, String> settings;

        @Override
        public void start(Map<String, String> props) {
            if (Files.exists(Path.of(props.get("file") + ".broken"))) {
                throw new ConnectException("it cannot start");
            }
            settings = props;
        }

        @Override
        public Class<? extends Task> taskClass() {
            return SourceTaskOfKept.class;
        }

        @Override
        public List<Map<String, String>> taskConfigs(int most) {
            return oneTask(settings, 1);
        }

        @Override
        public void stop() {}

        @Override
        public ConfigDef config() {
            return new ConfigDef(FILE)
                    .define("topic", ConfigDef.Type.STRING, ConfigDef.Importance.HIGH, "The topic that is written to");
        }

        @Override
        public String version() {
            return "1";
        }
    }

    public static final class SourceTaskOfKept extends SourceTask {
        private Path file;
        private String topic;
        private long next;

        @Override
        public void start(Map<String, String> props) {
            file = Path.of(props.get("file"));
            topic = props.get("topic");
            Map<String, Object> kept = context.offsetStorageReader().offset(Map.of("file", file.toString()));
            next = kept == null ? 0 : (Long) kept.get("next");
        }

        @Override
        public List<SourceRecord> poll() throws InterruptedException {
            Thread.sleep(10);
            String key = "c" + next % 12;
            byte[] value = Long.toString(next / 12).getBytes(StandardCharsets.UTF_8);
            next++;
            return List.of(
                    new SourceRecord(
                            Map.of("file", file.toString()),
                            Map.of("next", next),
                            topic,
                            Schema.BYTES_SCHEMA,
                            key.getBytes(StandardCharsets.UTF_8),
                            Schema.BYTES_SCHEMA,
                            value));
        }

        @Override
        public void commitRecord(SourceRecord r, RecordMetadata metadata) {
            if (metadata != null) {
                String key = new String((byte[]) r.key(), StandardCharsets.UTF_8);
                append(file, key, new String((byte[]) r.value(), StandardCharsets.UTF_8), r.topic());
            }
        }

        @Override
        public void stop() {}

        @Override
        public String version() {
            return "1";
        }
    }
}
